"""Expectations of the flags of `diffusers-dreambooth`."""

from __future__ import annotations

from typing import Any

import pytest
from dialect_cases import diffusers_sd
from foreign_lines import Lines, without

BAREST = ("--pretrained_model_name_or_path=sd15", "--instance_data_dir=cat", "--instance_prompt=a photo of sks cat")
PRIOR = ("--with_prior_preservation", "--class_data_dir=cats", "--class_prompt=a cat")
_GONE = (
    "non_ema_revision", "validation_prompts", "input_perturbation", "tracker_project_name", "use_ema", "dataset_name",
    "dataset_config_name", "train_data_dir", "image_column", "caption_column", "max_train_samples", "cache_dir",
    "random_flip", "noise_offset", "prediction_type", "validation_epochs",
)  # fmt: skip

DOCUMENTED: dict[str, Any] = without(diffusers_sd.DOCUMENTED, *_GONE) | {
    "tokenizer_name": None, "instance_data_dir": None, "instance_prompt": None, "class_data_dir": None,
    "class_prompt": None, "with_prior_preservation": False, "prior_loss_weight": 1.0, "num_class_images": 100,
    "output_dir": "dreambooth-model", "train_text_encoder": False, "train_batch_size": 4, "sample_batch_size": 4,
    "num_train_epochs": 1, "learning_rate": 5e-6, "lr_num_cycles": 1, "lr_power": 1.0, "validation_prompt": None,
    "num_validation_images": 4, "validation_steps": 100, "prior_generation_precision": None,
    "set_grads_to_none": False, "offset_noise": False, "pre_compute_text_embeddings": False,
    "tokenizer_max_length": None, "text_encoder_use_attention_mask": False, "skip_save_text_encoder": False,
    "validation_images": None, "class_labels_conditioning": None,
    "validation_scheduler": "DPMSolverMultistepScheduler",
}  # fmt: skip

_NOT_SET = (
    "optim.ema.decay", "optim.ema.interval", "optim.ema.device", "data.columns.image",
    "data.columns.caption", "data.max_samples", "model.prediction", "run.preview.weights",
)  # fmt: skip
EXPECTED: dict[str, Any] = without(diffusers_sd.EXPECTED, *_NOT_SET) | {
    "data.path": "cat", "data.format": "image-folder", "data.captions.trigger": "a photo of sks cat",
    "data.captions.template": "{trigger}", "data.batch_size": 4, "data.cache.text": False, "optim.lr": 5e-6,
    "run.epochs": 1, "run.export.folder": "dreambooth-model", "run.folder": "dreambooth-model",
    "run.name": "dreambooth-model", "sample.steps": 25, "sample.guidance": 7.5, "sample.solver": "dpm++",
}  # fmt: skip

ACTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "instance_data_dir": (["--instance_data_dir=b"], {"data.path": "b"}),
    "instance_prompt": (["--instance_prompt=sks"], {"data.captions.trigger": "sks"}),
    "class_data_dir": (["--class_data_dir=dogs"], {"data.prior.path": "dogs"}),
    "class_prompt": (["--class_prompt=a dog"], {"data.prior.class_prompt": "a dog"}),
    "with_prior_preservation": (
        [*PRIOR],
        {
            "data.prior.path": "cats", "data.prior.class_prompt": "a cat", "data.prior.balance": "pairs",
            "data.prior.weight": 1.0, "data.prior.num_class_images": 100, "data.batch_size": 8, "sample.batch_size": 4,
        },
    ),
    "prior_loss_weight": (["--prior_loss_weight=0.5"], {"data.prior.weight": 0.5}),
    "num_class_images": (["--num_class_images=20"], {"data.prior.num_class_images": 20}),
    "sample_batch_size": (["--sample_batch_size=2"], {"sample.batch_size": 2}),
    "train_text_encoder": (["--train_text_encoder"], {"model.train": ["denoiser", "text_encoder"]}),
    "pre_compute_text_embeddings": (["--pre_compute_text_embeddings"], {"data.cache.text": True}),
    "scale_lr": (
        ["--scale_lr", "--train_batch_size=2", "--gradient_accumulation_steps=3"],
        {"optim.lr": pytest.approx(3e-5), "data.batch_size": 2, "optim.accumulation": 3},
    ),
    "lr_num_cycles": (["--lr_num_cycles=3"], {"optim.schedule.cycles": 3}),
    "lr_power": (["--lr_power=2"], {"optim.schedule.power": 2.0}),
    "offset_noise": (["--offset_noise"], {"objective.noise_offset": 0.1}),
    "validation_scheduler": (["--validation_scheduler=DDPMScheduler"], {"sample.solver": "ddpm"}),
    "validation_prompt": (
        ["--validation_prompt=a cat"], {"sample.prompts": ["a cat"] * 4, "run.preview.every": "100 steps"},
    ),
    "num_validation_images": (
        ["--validation_prompt=a cat", "--num_validation_images=2"],
        {"sample.prompts": ["a cat"] * 2, "run.preview.every": "100 steps"},
    ),
    "validation_steps": (
        ["--validation_prompt=a cat", "--validation_steps=30", "--num_validation_images=1"],
        {"sample.prompts": ["a cat"], "run.preview.every": "30 steps"},
    ),
    "train_batch_size": (["--train_batch_size=3"], {"data.batch_size": 3}),
    "report_to": (
        ["--report_to=wandb"],
        {"run.tensorboard": False, "run.wandb.mode": "online", "run.wandb.project": "dreambooth"},
    ),
}  # fmt: skip

BESIDE = dict.fromkeys(
    ("class_data_dir", "class_prompt", "prior_loss_weight", "num_class_images", "sample_batch_size"), PRIOR
)
IMPOSSIBLE = (
    (["--with_prior_preservation", "--class_prompt=a"], "--class_data_dir"),
    (["--with_prior_preservation", "--class_data_dir=a"], "--class_prompt"),
    ([*PRIOR, "--prior_loss_weight=-1"], "--prior_loss_weight"),
    ([*PRIOR, "--num_class_images=0"], "--num_class_images"), (["--lr_power=0"], "--lr_power"),
    (["--train_text_encoder", "--pre_compute_text_embeddings"], "--train_text_encoder"),
    (["--validation_prompt=a", "--num_validation_images=0"], "--num_validation_images"),
    (["--resolution=500"], "--resolution"),
)  # fmt: skip

LINES = Lines(
    "diffusers-dreambooth",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts={**{flag: case for flag, case in diffusers_sd.ACTS.items() if flag in DOCUMENTED}, **ACTS},
    impossible=(*IMPOSSIBLE, ([*PRIOR, "--snr_gamma=5"], "--snr_gamma")),
    beside=BESIDE,
)
