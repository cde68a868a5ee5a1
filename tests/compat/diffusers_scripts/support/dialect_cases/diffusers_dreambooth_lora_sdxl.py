"""Expectations of the flags of `diffusers-dreambooth-lora-sdxl`."""

from __future__ import annotations

from typing import Any

import pytest
from dialect_cases import diffusers_dreambooth, diffusers_dreambooth_lora
from foreign_lines import Lines, without

BAREST = ("--pretrained_model_name_or_path=sdxl", "--instance_data_dir=cat", "--instance_prompt=a photo of sks cat")
_GONE = (
    "tokenizer_name", "pre_compute_text_embeddings", "tokenizer_max_length", "text_encoder_use_attention_mask",
    "validation_images", "class_labels_conditioning",
)  # fmt: skip
_OF_TABLES = ("dataset_name", "dataset_config_name", "cache_dir", "image_column", "caption_column")

DOCUMENTED: dict[str, Any] = without(diffusers_dreambooth_lora.DOCUMENTED, *_GONE) | {
    "pretrained_vae_model_name_or_path": None, "dataset_name": None, "dataset_config_name": None, "cache_dir": None,
    "image_column": "image", "caption_column": None, "repeats": 1, "random_flip": False, "resolution": 1024,
    "do_edm_style_training": False, "output_kohya_format": False, "text_encoder_lr": 5e-6, "learning_rate": 1e-4,
    "snr_gamma": None, "optimizer": "AdamW", "prodigy_beta3": None, "prodigy_decouple": True,
    "prodigy_use_bias_correction": True, "prodigy_safeguard_warmup": True, "adam_weight_decay": 1e-4,
    "adam_weight_decay_text_encoder": 1e-3, "use_dora": False,
}  # fmt: skip

EXPECTED: dict[str, Any] = without(diffusers_dreambooth_lora.EXPECTED, "data.cache.text") | {
    "model.path": "sdxl", "model.family": "sdxl", "data.resolution": 1024, "data.repeats": 1.0, "optim.lr": 1e-4,
    "data.columns.image": "image", "optim.optimizer.weight_decay": 1e-4, "run.vae_dtype": "fp32",
    "sample.guidance": 5.0, "objective.min_snr_gamma": None, "objective.min_snr_form": "prediction",
}  # fmt: skip

_TEXTS = ("text_encoder", "text_encoder_2")


def _of_texts(rate: float | None = 5e-6, **optimizer: Any) -> dict[str, Any]:
    own = {"kind": "adamw", "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 1e-3} | optimizer
    rates = {f"optim.part_lr.{part}": rate for part in _TEXTS if rate is not None}
    return {f"optim.part_optimizer.{part}.{name}": value for part in _TEXTS for name, value in own.items()} | rates


_KEPT = {flag: case for flag, case in diffusers_dreambooth_lora.ACTS.items() if flag in DOCUMENTED}
ACTS: dict[str, tuple[list[str], dict[str, Any]]] = _KEPT | {
    "pretrained_vae_model_name_or_path": (["--pretrained_vae_model_name_or_path=fixed"], {"model.vae": "fixed"}),
    "random_flip": (["--random_flip"], {"data.flip": 0.5}),
    "repeats": (["--repeats=3"], {"data.repeats": 3.0}),
    "snr_gamma": (["--snr_gamma=5"], {"objective.min_snr_gamma": 5.0}),
    "scale_lr": (
        ["--scale_lr", "--train_batch_size=2", "--gradient_accumulation_steps=3"],
        {"optim.lr": pytest.approx(6e-4), "data.batch_size": 2, "optim.accumulation": 3},
    ),
    "train_text_encoder": (["--train_text_encoder"], {"model.train": ["denoiser", *_TEXTS]} | _of_texts()),
    "text_encoder_lr": (["--text_encoder_lr=1e-5"], {f"optim.part_lr.{part}": 1e-5 for part in _TEXTS}),
    "adam_weight_decay_text_encoder": (
        ["--adam_weight_decay_text_encoder=0.5"],
        {f"optim.part_optimizer.{part}.weight_decay": 0.5 for part in _TEXTS},
    ),
    "optimizer": (
        ["--optimizer=prodigy"],
        {
            "optim.optimizer.kind": "prodigy", "optim.optimizer.d_beta": None, "optim.optimizer.bias_correction": True,
            "optim.optimizer.safeguard_warmup": True,
        },
    ),
    "prodigy_beta3": (["--prodigy_beta3=0.99"], {"optim.optimizer.d_beta": 0.99}),
    "use_dora": (["--use_dora"], {"model.adapter.kind": "dora"}),
    "output_kohya_format": (["--output_kohya_format"], {"run.export.adapter": "both"}),
    "report_to": (
        ["--report_to=wandb"],
        {"run.tensorboard": False, "run.wandb.mode": "online", "run.wandb.project": "dreambooth-lora-sd-xl"},
    ),
}  # fmt: skip

LINES = Lines(
    "diffusers-dreambooth-lora-sdxl",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts={flag: case for flag, case in ACTS.items() if flag != "instance_data_dir"},
    impossible=(
        *(case for case in diffusers_dreambooth_lora.LINES.impossible if "--train_text_encoder" not in case[0]),
        (["--dataset_name=x"], "--instance_data_dir"),
        (["--repeats=0"], "--repeats"),
        (["--optimizer=lion"], "--optimizer"),
        (["--train_text_encoder", "--text_encoder_lr=-1"], "--text_encoder_lr"),
        ([*diffusers_dreambooth.PRIOR, "--snr_gamma=5"], "--snr_gamma"),
    ),
    beside=diffusers_dreambooth_lora.LINES.beside
    | {
        "text_encoder_lr": ("--train_text_encoder",),
        "adam_weight_decay_text_encoder": ("--train_text_encoder",),
        "prodigy_beta3": ("--optimizer=prodigy",),
    },
    elsewhere=frozenset((*_OF_TABLES, "instance_data_dir")),
)
