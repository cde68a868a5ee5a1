"""The dialects of diffusers' scripts for models on straight paths: `diffusers-dreambooth-sd3` and
`diffusers-dreambooth-flux`, and `diffusers-dreambooth-lora-` `flux`, `flux2-klein`, `qwen-image`, `sd3`, `z-image`.

From outside: nothing; the registry reads `ENTRY_POINTS` of the folder above.
"""
