"""Expectations of the flags of `diffusers-lora`."""

from __future__ import annotations

from typing import Any

from dialect_cases import diffusers_sd, diffusers_sdxl
from foreign_lines import Lines, without

BAREST = diffusers_sd.BAREST
_GONE = ("non_ema_revision", "validation_prompts", "input_perturbation", "tracker_project_name", "use_ema")

DOCUMENTED: dict[str, Any] = without(diffusers_sd.DOCUMENTED, *_GONE) | {
    "output_dir": "sd-model-finetuned-lora", "image_interpolation_mode": "lanczos", "rank": 4,
    "validation_prompt": None, "num_validation_images": 4, "validation_epochs": 1,
}  # fmt: skip

_EMA = ("optim.ema.decay", "optim.ema.interval", "optim.ema.device")
EXPECTED: dict[str, Any] = without(diffusers_sd.EXPECTED, *_EMA) | {
    "model.adapter.kind": "lora", "model.adapter.rank": 4, "model.adapter.targets": ["attention"],
    "model.adapter.init": "gaussian", "run.export.adapter": "diffusers", "data.resize": "lanczos",
    "run.export.folder": "sd-model-finetuned-lora", "run.folder": "sd-model-finetuned-lora",
    "run.name": "sd-model-finetuned-lora", "sample.steps": 30,
}  # fmt: skip

ACTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "rank": (["--rank=16"], {"model.adapter.rank": 16}),
    **{flag: diffusers_sdxl.ACTS[flag] for flag in ("validation_prompt", "num_validation_images", "validation_epochs")},
}  # fmt: skip

IMPOSSIBLE = (
    (["--rank=0"], "--rank"), (["--rank=four"], "--rank"), (["--network_alpha=4"], "--network_alpha"),
    (["--validation_prompt=a", "--num_validation_images=0"], "--num_validation_images"),
    (["--prediction_type=sample"], "--prediction_type"), (["--use_ema"], "--use_ema"),
)  # fmt: skip

LINES = Lines(
    "diffusers-lora",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts={**{flag: case for flag, case in diffusers_sd.ACTS.items() if flag in DOCUMENTED}, **ACTS},
    impossible=IMPOSSIBLE,
)
