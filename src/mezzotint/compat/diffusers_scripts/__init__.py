"""The training scripts of diffusers' examples: their command lines, a module for each script.

From outside: nothing; the registry reads `ENTRY_POINTS`.
"""

_SCRIPTS = f"{__name__}.dialect"
ENTRY_POINTS = {
    "mezzotint.dialects": {
        "diffusers-dreambooth": f"{_SCRIPTS}.dreambooth",
        "diffusers-dreambooth-flux": f"{_SCRIPTS}.flow.dreambooth_flux",
        "diffusers-dreambooth-lora": f"{_SCRIPTS}.dreambooth_lora",
        "diffusers-dreambooth-lora-flux": f"{_SCRIPTS}.flow.dreambooth_lora_flux",
        "diffusers-dreambooth-lora-flux2-klein": f"{_SCRIPTS}.flow.dreambooth_lora_flux2_klein",
        "diffusers-dreambooth-lora-qwen-image": f"{_SCRIPTS}.flow.dreambooth_lora_qwen_image",
        "diffusers-dreambooth-lora-sd3": f"{_SCRIPTS}.flow.dreambooth_lora_sd3",
        "diffusers-dreambooth-lora-sdxl": f"{_SCRIPTS}.dreambooth_lora_sdxl",
        "diffusers-dreambooth-lora-z-image": f"{_SCRIPTS}.flow.dreambooth_lora_z_image",
        "diffusers-dreambooth-sd3": f"{_SCRIPTS}.flow.dreambooth_sd3",
        "diffusers-lora": f"{_SCRIPTS}.lora",
        "diffusers-lora-sdxl": f"{_SCRIPTS}.lora_sdxl",
        "diffusers-sd": f"{_SCRIPTS}.sd",
        "diffusers-sdxl": f"{_SCRIPTS}.sdxl",
        "diffusers-textual-inversion": f"{_SCRIPTS}.textual_inversion",
        "diffusers-textual-inversion-sdxl": f"{_SCRIPTS}.textual_inversion_sdxl",
    }
}
