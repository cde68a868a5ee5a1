"""The dialects of diffusers' scripts: `diffusers-sd`, `diffusers-sdxl`, `diffusers-lora`, `diffusers-lora-sdxl`.

From outside: nothing; the registry names a dialect after this folder and its file.
"""
