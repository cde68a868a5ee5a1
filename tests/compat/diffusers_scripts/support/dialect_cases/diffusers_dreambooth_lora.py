"""Expectations of the flags of `diffusers-dreambooth-lora`."""

from __future__ import annotations

from typing import Any

import pytest
from dialect_cases import diffusers_dreambooth, diffusers_lora
from foreign_lines import Lines, without

BAREST = diffusers_dreambooth.BAREST
_GONE = (
    "offset_noise", "snr_gamma", "validation_steps", "validation_scheduler", "set_grads_to_none",
    "skip_save_text_encoder",
)  # fmt: skip

DOCUMENTED: dict[str, Any] = without(diffusers_dreambooth.DOCUMENTED, *_GONE) | {
    "output_dir": "lora-dreambooth-model", "learning_rate": 5e-4, "rank": 4, "lora_dropout": 0.0,
    "image_interpolation_mode": "lanczos", "validation_epochs": 50,
}  # fmt: skip

_OBJECTIVE = (
    "objective.noise_offset", "objective.min_snr_gamma", "objective.min_snr_form", "sample.solver",
)  # fmt: skip
EXPECTED: dict[str, Any] = without(diffusers_dreambooth.EXPECTED, *_OBJECTIVE) | {
    **{path: value for path, value in diffusers_lora.EXPECTED.items() if path.startswith("model.adapter.")},
    "model.adapter.dropout": 0.0, "run.export.adapter": "diffusers", "data.resize": "lanczos", "optim.lr": 5e-4,
    "run.export.folder": "lora-dreambooth-model", "run.folder": "lora-dreambooth-model",
    "run.name": "lora-dreambooth-model",
}  # fmt: skip

_EVERY = {"run.preview.every": "50 epochs"}
ACTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    **{flag: case for flag, case in diffusers_dreambooth.LINES.acts.items() if flag in DOCUMENTED},
    "scale_lr": (
        ["--scale_lr", "--train_batch_size=2", "--gradient_accumulation_steps=3"],
        {"optim.lr": pytest.approx(3e-3), "data.batch_size": 2, "optim.accumulation": 3},
    ),
    "rank": diffusers_lora.ACTS["rank"],
    "lora_dropout": (["--lora_dropout=0.1"], {"model.adapter.dropout": 0.1}),
    "image_interpolation_mode": (["--image_interpolation_mode=bicubic"], {"data.resize": "bicubic"}),
    "validation_prompt": (["--validation_prompt=a cat"], {"sample.prompts": ["a cat"] * 4} | _EVERY),
    "num_validation_images": (
        ["--validation_prompt=a cat", "--num_validation_images=2"], {"sample.prompts": ["a cat"] * 2} | _EVERY,
    ),
    "validation_epochs": (
        ["--validation_prompt=a cat", "--validation_epochs=3", "--num_validation_images=1"],
        {"sample.prompts": ["a cat"], "run.preview.every": "3 epochs"},
    ),
    "report_to": (
        ["--report_to=wandb"],
        {"run.tensorboard": False, "run.wandb.mode": "online", "run.wandb.project": "dreambooth-lora"},
    ),
}  # fmt: skip

LINES = Lines(
    "diffusers-dreambooth-lora",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts=ACTS,
    impossible=(*diffusers_dreambooth.IMPOSSIBLE, (["--rank=0"], "--rank")),
    beside=diffusers_dreambooth.BESIDE,
)
