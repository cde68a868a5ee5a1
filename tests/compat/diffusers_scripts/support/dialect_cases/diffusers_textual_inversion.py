"""Expectations of the flags of `diffusers-textual-inversion`."""

from __future__ import annotations

from typing import Any

import pytest
from dialect_cases import diffusers_dreambooth_lora
from foreign_lines import Lines, without

from mezzotint.compat.kit.caption_templates import SENTENCES

BAREST = (
    "--pretrained_model_name_or_path=sd15", "--train_data_dir=cat", "--placeholder_token=<cat-toy>",
    "--initializer_token=toy",
)  # fmt: skip
_GONE = (
    "instance_data_dir", "instance_prompt", "class_data_dir", "class_prompt", "with_prior_preservation",
    "prior_loss_weight", "num_class_images", "sample_batch_size", "prior_generation_precision", "lr_power",
    "use_8bit_adam", "max_grad_norm", "rank", "lora_dropout", "train_text_encoder", "pre_compute_text_embeddings",
    "tokenizer_max_length", "text_encoder_use_attention_mask", "validation_images", "class_labels_conditioning",
    "image_interpolation_mode",
)  # fmt: skip

DOCUMENTED: dict[str, Any] = without(diffusers_dreambooth_lora.DOCUMENTED, *_GONE) | {
    "train_data_dir": None, "placeholder_token": None, "initializer_token": None, "num_vectors": 1,
    "learnable_property": "object", "repeats": 100, "output_dir": "text-inversion-model", "train_batch_size": 16,
    "num_train_epochs": 100, "max_train_steps": 5000, "learning_rate": 1e-4, "mixed_precision": "no",
    "save_steps": 500, "save_as_full_pipeline": False, "validation_steps": 100, "validation_epochs": None,
    "no_safe_serialization": False,
}  # fmt: skip

OBJECT = "{" + "|".join(one.format("{trigger}") for one in SENTENCES["object"]) + "}"
_NOT_SET = ("run.epochs", "run.export.adapter", "optim.clip.scope", "optim.schedule.power", "data.cache.text")
_KEPT = without(diffusers_dreambooth_lora.EXPECTED, *_NOT_SET)
EXPECTED: dict[str, Any] = {path: value for path, value in _KEPT.items() if "adapter" not in path} | {
    "model.train": ["tokens"], "model.tokens.words.<cat-toy>": "toy", "model.tokens.vectors": 1,
    "data.captions.trigger": "<cat-toy>", "data.captions.template": OBJECT, "data.captions.wildcards": True,
    "data.repeats": 100.0, "data.crop": "stretch", "data.flip": 0.5, "data.resize": "bicubic",
    "data.batch_size": 16, "optim.lr": 1e-4, "optim.clip.norm": None, "optim.schedule.power": 1.0, "run.steps": 5000,
    "run.export.every": "500 steps", "run.folder": "text-inversion-model",
    "run.export.folder": "text-inversion-model", "run.name": "text-inversion-model",
}  # fmt: skip

_SHOWN = {"sample.prompts": ["a <cat-toy>"] * 4}
_CASES = {flag: case for flag, case in diffusers_dreambooth_lora.LINES.acts.items() if flag in DOCUMENTED}
ACTS: dict[str, tuple[list[str], dict[str, Any]]] = without(_CASES, "num_train_epochs") | {
    "train_data_dir": (["--train_data_dir=b"], {"data.path": "b"}),
    "num_vectors": (["--num_vectors=3"], {"model.tokens.vectors": 3}),
    "repeats": (["--repeats=7"], {"data.repeats": 7.0}),
    "center_crop": (["--center_crop"], {"data.crop": "center"}),
    "scale_lr": (
        ["--scale_lr", "--train_batch_size=2", "--gradient_accumulation_steps=3"],
        {"optim.lr": pytest.approx(6e-4), "data.batch_size": 2, "optim.accumulation": 3},
    ),
    "max_train_steps": (["--max_train_steps=7"], {"run.steps": 7}),
    "save_steps": (["--save_steps=20"], {"run.export.every": "20 steps"}),
    "validation_prompt": (["--validation_prompt=a <cat-toy>"], _SHOWN | {"run.preview.every": "100 steps"}),
    "num_validation_images": (
        ["--validation_prompt=a <cat-toy>", "--num_validation_images=2"],
        {"sample.prompts": ["a <cat-toy>"] * 2, "run.preview.every": "100 steps"},
    ),
    "validation_steps": (
        ["--validation_prompt=a <cat-toy>", "--validation_steps=30"], _SHOWN | {"run.preview.every": "30 steps"},
    ),
    "validation_epochs": (
        ["--validation_prompt=a <cat-toy>", "--validation_epochs=2"], _SHOWN | {"run.preview.every": "2 epochs"},
    ),
    "report_to": (
        ["--report_to=wandb"],
        {"run.tensorboard": False, "run.wandb.mode": "online", "run.wandb.project": "textual_inversion"},
    ),
}  # fmt: skip

IMPOSSIBLE = (
    (["--num_vectors=0"], "--num_vectors"), (["--repeats=0"], "--repeats"), (["--save_steps=0"], "--save_steps"),
    (["--learnable_property=person"], "--learnable_property"), (["--resolution=500"], "--resolution"),
    (["--placeholder_token=a|b"], "--placeholder_token"),
    (["--validation_prompt=a", "--num_validation_images=0"], "--num_validation_images"),
)  # fmt: skip

LINES = Lines(
    "diffusers-textual-inversion",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts=ACTS,
    impossible=IMPOSSIBLE,
    elsewhere=frozenset(("placeholder_token", "initializer_token", "learnable_property", "num_train_epochs")),
)
