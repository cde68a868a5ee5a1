"""Expectations of the flags of `diffusers-instruct-pix2pix`."""

from __future__ import annotations

from typing import Any

from dialect_cases import diffusers_sd
from foreign_lines import Lines, without

BAREST = ("--pretrained_model_name_or_path=sd15", "--train_data_dir=pairs")

DOCUMENTED: dict[str, Any] = without(
    diffusers_sd.DOCUMENTED, "image_column", "caption_column", "validation_prompts", "snr_gamma", "input_perturbation",
    "noise_offset", "prediction_type", "tracker_project_name",
) | {
    "original_image_column": "input_image", "edited_image_column": "edited_image", "edit_prompt_column": "edit_prompt",
    "val_image_url": None, "validation_prompt": None, "num_validation_images": 4, "validation_epochs": 1,
    "conditioning_dropout_prob": None, "output_dir": "instruct-pix2pix-model", "resolution": 256,
}  # fmt: skip

EXPECTED: dict[str, Any] = without(
    diffusers_sd.EXPECTED, "model.prediction", "objective.min_snr_gamma", "objective.min_snr_form",
    "objective.noise_offset", "optim.ema.device",
) | {
    "model.task": "edit", "data.path": "pairs", "data.columns.image": "edited_image",
    "data.columns.caption": "edit_prompt", "data.conditions.source.column": "input_image", "data.resolution": 256,
    "data.crop": "stretch", "data.resize": "bicubic", "run.export.folder": "instruct-pix2pix-model",
    "run.folder": "instruct-pix2pix-model", "run.name": "instruct-pix2pix-model", "sample.steps": 20,
    "sample.guidance": 7.0, "sample.image_guidance": 1.5,
}  # fmt: skip

OWN = ("validation_prompts", "validation_epochs", "report_to", "center_crop")

ACTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    **{flag: case for flag, case in diffusers_sd.ACTS.items() if flag in DOCUMENTED and flag not in OWN},
    "original_image_column": (["--original_image_column=a"], {"data.conditions.source.column": "a"}),
    "edited_image_column": (["--edited_image_column=b"], {"data.columns.image": "b"}),
    "edit_prompt_column": (["--edit_prompt_column=c"], {"data.columns.caption": "c"}),
    "conditioning_dropout_prob": (["--conditioning_dropout_prob=0.05"], {"data.condition_dropout": 0.05}),
    "val_image_url": (
        ["--validation_prompt=make it red", "--val_image_url=cat.png"],
        {"sample.prompts": ["make it red"] * 4, "sample.conditions.source": "cat.png", "run.preview.every": "1 epochs"},
    ),
    "validation_prompt": (
        ["--validation_prompt=make it red", "--val_image_url=dog.png"],
        {"sample.prompts": ["make it red"] * 4, "sample.conditions.source": "dog.png", "run.preview.every": "1 epochs"},
    ),
    "num_validation_images": (
        ["--validation_prompt=a", "--val_image_url=cat.png", "--num_validation_images=2"],
        {"sample.prompts": ["a"] * 2, "sample.conditions.source": "cat.png", "run.preview.every": "1 epochs"},
    ),
    "validation_epochs": (
        ["--validation_prompt=a", "--val_image_url=cat.png", "--num_validation_images=1", "--validation_epochs=3"],
        {"sample.prompts": ["a"], "sample.conditions.source": "cat.png", "run.preview.every": "3 epochs"},
    ),
    "report_to": (
        ["--report_to=wandb"],
        {"run.tensorboard": False, "run.wandb.mode": "online", "run.wandb.project": "instruct-pix2pix"},
    ),
}  # fmt: skip

IMPOSSIBLE: tuple[tuple[Any, ...], ...] = (
    (["--conditioning_dropout_prob=-0.1"], "--conditioning_dropout_prob"),
    (["--conditioning_dropout_prob=0.5"], "--conditioning_dropout_prob"),
    (["--edited_image_column=input_image"], "--edited_image_column"),
    (["--resolution=500"], "--resolution"), (["--train_batch_size=0"], "--train_batch_size"),
    (["--max_grad_norm=0"], "--max_grad_norm"), (["--report_to=comet_ml"], "--report_to"),
    (["--snr_gamma=5"], "--snr_gamma"),
)  # fmt: skip

LINES = Lines(
    "diffusers-instruct-pix2pix",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts=ACTS,
    impossible=(
        *IMPOSSIBLE, (["--non_ema_revision=a"], "--non_ema_revision"),
        (["--validation_prompt=a", "--val_image_url=https://example.org/cat.png"], "--val_image_url"),
        (["--validation_prompt=a", "--val_image_url=cat.png", "--validation_epochs=0"], "--validation_epochs"),
    ),
    files={"cat.png": "", "dog.png": ""},
)  # fmt: skip
