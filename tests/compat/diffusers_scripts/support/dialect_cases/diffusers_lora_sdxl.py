"""Expectations of the flags of `diffusers-lora-sdxl`."""

from __future__ import annotations

from typing import Any

from dialect_cases import diffusers_lora, diffusers_sdxl
from foreign_lines import Lines

BAREST = diffusers_sdxl.BAREST

DOCUMENTED: dict[str, Any] = diffusers_lora.DOCUMENTED | {
    "pretrained_vae_model_name_or_path": None, "resolution": 1024, "train_text_encoder": False, "debug_loss": False,
    "enable_npu_flash_attention": False,
}  # fmt: skip

EXPECTED: dict[str, Any] = diffusers_lora.EXPECTED | {
    "model.path": "sdxl", "model.family": "sdxl", "data.resolution": 1024, "run.vae_dtype": "fp32", "sample.steps": 25,
    "sample.guidance": 5.0,
}  # fmt: skip

ACTS: dict[str, tuple[list[str], dict[str, Any]]] = diffusers_lora.LINES.acts | {
    "pretrained_vae_model_name_or_path": (
        ["--pretrained_vae_model_name_or_path=fixed"], {"model.vae": "fixed", "run.vae_dtype": "same"},
    ),
    "train_text_encoder": (
        ["--train_text_encoder"], {"model.train": ["denoiser", "text_encoder", "text_encoder_2"]},
    ),
}  # fmt: skip

LINES = Lines(
    "diffusers-lora-sdxl",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts=ACTS,
    impossible=(*diffusers_lora.IMPOSSIBLE, (["--train_text_encoders=2"], "--train_text_encoders")),
)
