"""The training scripts of diffusers' examples: their command lines, as tables of scripts and flags.

From outside: nothing; the registry reads `ENTRY_POINTS`.
"""

_NAMES = (
    "sd", "sdxl", "lora", "lora-sdxl", "dreambooth", "dreambooth-lora", "dreambooth-lora-sdxl", "dreambooth-sd3",
    "dreambooth-lora-sd3", "dreambooth-flux", "dreambooth-lora-flux", "dreambooth-lora-flux2-klein",
    "dreambooth-lora-qwen-image", "dreambooth-lora-z-image", "textual-inversion", "textual-inversion-sdxl",
    "instruct-pix2pix", "instruct-pix2pix-sdxl",
)  # fmt: skip
ENTRY_POINTS = {"mezzotint.dialects": {f"diffusers-{name}": f"{__name__}.dialect" for name in _NAMES}}
