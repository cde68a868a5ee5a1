"""Expectations of the flags of `diffusers-textual-inversion-sdxl`."""

from __future__ import annotations

from typing import Any

from dialect_cases import diffusers_dreambooth, diffusers_textual_inversion
from foreign_lines import Lines, without

SD = diffusers_textual_inversion.LINES
BAREST = ("--pretrained_model_name_or_path=sdxl", *SD.barest[1:])
_GONE = ("tokenizer_name", "validation_epochs", "no_safe_serialization")

DOCUMENTED: dict[str, Any] = without(SD.defaults, *_GONE) | {"use_8bit_adam": False}
EXPECTED: dict[str, Any] = dict(SD.settings) | {
    "model.path": "sdxl", "model.family": "sdxl", "run.vae_dtype": "fp32", "sample.guidance": 5.0,
}  # fmt: skip

LINES = Lines(
    "diffusers-textual-inversion-sdxl",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts=without(SD.acts, *_GONE) | {"use_8bit_adam": diffusers_dreambooth.LINES.acts["use_8bit_adam"]},
    impossible=SD.impossible,
    elsewhere=SD.elsewhere,
)
