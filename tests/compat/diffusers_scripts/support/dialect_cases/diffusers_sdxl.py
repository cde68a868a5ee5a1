"""Expectations of the flags of `diffusers-sdxl`."""

from __future__ import annotations

from typing import Any

from dialect_cases import diffusers_sd
from foreign_lines import Lines, without

BAREST = ("--pretrained_model_name_or_path=sdxl", "--train_data_dir=photos")

DOCUMENTED: dict[str, Any] = without(
    diffusers_sd.DOCUMENTED, "non_ema_revision", "validation_prompts", "input_perturbation", "tracker_project_name",
) | {
    "pretrained_vae_model_name_or_path": None, "validation_prompt": None, "num_validation_images": 4,
    "validation_epochs": 1, "proportion_empty_prompts": 0, "output_dir": "sdxl-model-finetuned", "resolution": 1024,
    "timestep_bias_strategy": "none", "timestep_bias_multiplier": 1.0, "timestep_bias_begin": 0,
    "timestep_bias_end": 1000, "timestep_bias_portion": 0.25,
}  # fmt: skip

AT_HEAD: dict[str, Any] = {"image_interpolation_mode": "bilinear", "enable_npu_flash_attention": False}

EXPECTED: dict[str, Any] = without(diffusers_sd.EXPECTED, "optim.ema.device") | {
    "model.path": "sdxl", "model.family": "sdxl", "data.resolution": 1024, "data.captions.dropout": 0.0,
    "data.cache.latents": True, "data.cache.text": True, "data.cache.crops": 1,
    "objective.timestep_bias.strategy": "none", "objective.timestep_bias.multiplier": 1.0,
    "objective.timestep_bias.begin": 0, "objective.timestep_bias.end": 1000, "objective.timestep_bias.portion": 0.25,
    "run.vae_dtype": "fp32", "run.export.folder": "sdxl-model-finetuned", "run.folder": "sdxl-model-finetuned",
    "run.name": "sdxl-model-finetuned", "sample.steps": 25, "sample.guidance": 5.0,
}  # fmt: skip

ACTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "pretrained_vae_model_name_or_path": (["--pretrained_vae_model_name_or_path=fixed"], {"model.vae": "fixed"}),
    "resolution": (["--resolution=768"], {"data.resolution": 768}),
    "center_crop": (["--center_crop"], {"data.crop": "center"}),
    "random_flip": (["--random_flip"], {"data.flip": 0.5}),
    "proportion_empty_prompts": (["--proportion_empty_prompts=0.2"], {"data.captions.dropout": 0.2}),
    "timestep_bias_strategy": (["--timestep_bias_strategy=later"], {"objective.timestep_bias.strategy": "later"}),
    "timestep_bias_multiplier": (["--timestep_bias_multiplier=2"], {"objective.timestep_bias.multiplier": 2.0}),
    "timestep_bias_begin": (["--timestep_bias_begin=200"], {"objective.timestep_bias.begin": 200}),
    "timestep_bias_end": (["--timestep_bias_end=500"], {"objective.timestep_bias.end": 500}),
    "timestep_bias_portion": (["--timestep_bias_portion=0.5"], {"objective.timestep_bias.portion": 0.5}),
    "prediction_type": (["--prediction_type=v_prediction"], {"model.prediction": "v"}),
    "output_dir": (["--output_dir=out/xl"], {"run.folder": "out/xl", "run.export.folder": "out/xl", "run.name": "xl"}),
    "mixed_precision": (["--mixed_precision=bf16"], {"run.precision": "bf16", "run.frozen_dtype": "same"}),
    "validation_prompt": (
        ["--validation_prompt=a cat"], {"sample.prompts": ["a cat"] * 4, "run.preview.every": "1 epochs"},
    ),
    "num_validation_images": (
        ["--validation_prompt=a cat", "--num_validation_images=2"],
        {"sample.prompts": ["a cat"] * 2, "run.preview.every": "1 epochs"},
    ),
    "validation_epochs": (
        ["--validation_prompt=a cat", "--validation_epochs=3", "--num_validation_images=1"],
        {"sample.prompts": ["a cat"], "run.preview.every": "3 epochs"},
    ),
    "report_to": (
        ["--report_to=wandb"],
        {"run.tensorboard": False, "run.wandb.mode": "online", "run.wandb.project": "text2image-fine-tune-sdxl"},
    ),
}  # fmt: skip

LINES = Lines(
    "diffusers-sdxl",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts={**{flag: case for flag, case in diffusers_sd.ACTS.items() if flag in DOCUMENTED | AT_HEAD}, **ACTS},
    impossible=(
        (["--prediction_type=sample"], "--prediction_type"),
        (["--proportion_empty_prompts=1.5"], "--proportion_empty_prompts"),
        (["--timestep_bias_strategy=latter"], "--timestep_bias_strategy"),
        (["--timestep_bias_multiplier=0"], "--timestep_bias_multiplier"),
        (["--timestep_bias_begin=-1"], "--timestep_bias_begin"), (["--timestep_bias_end=1001"], "--timestep_bias_end"),
        (["--validation_prompt=a", "--num_validation_images=0"], "--num_validation_images"),
        (["--validation_promptz=a"], "--validation_promptz"), (["--input_perturbation=0.1"], "--input_perturbation"),
        (["--resolution=1000000"], "--resolution"),
    ),
    later=AT_HEAD,
)  # fmt: skip
