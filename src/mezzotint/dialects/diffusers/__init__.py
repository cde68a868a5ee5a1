"""The dialects of diffusers' scripts: `diffusers-sd`, `diffusers-sdxl`, `diffusers-lora`, `diffusers-lora-sdxl`,
`diffusers-dreambooth`, `diffusers-dreambooth-lora`, `diffusers-dreambooth-lora-sdxl`, `diffusers-textual-inversion`,
`diffusers-textual-inversion-sdxl`.

From outside: nothing; the registry names a dialect after this folder and its file.
"""
