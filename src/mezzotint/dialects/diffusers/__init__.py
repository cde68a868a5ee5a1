"""The dialects of the two text-to-image scripts of diffusers, `diffusers-sd` and `diffusers-sdxl`.

From outside: nothing; the registry names a dialect after this folder and its file.
"""
