"""Expectations of the flags of `diffusers-sd`."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_lines import Lines

BAREST = ("--pretrained_model_name_or_path=sd15", "--train_data_dir=photos")

DOCUMENTED: dict[str, Any] = {
    # flags of 0.26.3 with their defaults
    "pretrained_model_name_or_path": None, "revision": None, "non_ema_revision": None, "variant": None,
    "dataset_name": None, "dataset_config_name": None, "train_data_dir": None, "image_column": "image",
    "caption_column": "text", "max_train_samples": None, "validation_prompts": None, "validation_epochs": 5,
    "output_dir": "sd-model-finetuned", "cache_dir": None, "seed": None, "resolution": 512, "center_crop": False,
    "random_flip": False, "train_batch_size": 16, "num_train_epochs": 100, "max_train_steps": None,
    "gradient_accumulation_steps": 1, "gradient_checkpointing": False, "learning_rate": 1e-4, "scale_lr": False,
    "lr_scheduler": "constant", "lr_warmup_steps": 500, "snr_gamma": None, "input_perturbation": 0, "noise_offset": 0,
    "prediction_type": None, "use_8bit_adam": False, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_weight_decay": 1e-2,
    "adam_epsilon": 1e-8, "max_grad_norm": 1.0, "allow_tf32": False, "use_ema": False, "dataloader_num_workers": 0,
    "enable_xformers_memory_efficient_attention": False, "mixed_precision": None, "checkpointing_steps": 500,
    "checkpoints_total_limit": None, "resume_from_checkpoint": None, "report_to": "tensorboard", "logging_dir": "logs",
    "tracker_project_name": "text2image-fine-tune", "push_to_hub": False, "hub_token": None, "hub_model_id": None,
    "local_rank": -1,
}  # fmt: skip

AT_HEAD: dict[str, Any] = {
    # 0.26.3 is always bilinear, and its default counts
    "image_interpolation_mode": "bilinear", "dream_training": False, "dream_detail_preservation": 1.0,
    "offload_ema": False, "foreach_ema": False,
}  # fmt: skip

EXPECTED: dict[str, Any] = {
    "schema": 1,
    "model.path": "sd15", "model.family": "sd", "model.train": ["denoiser"], "model.prediction": None,
    "data.path": "photos", "data.format": "metadata", "data.columns.image": "image",
    "data.columns.caption": "text", "data.max_samples": None, "data.resolution": 512,
    "data.buckets.shape": "square", "data.buckets.step": 64, "data.crop": "random", "data.flip": 0.0,
    "data.resize": "bilinear",
    "data.batch_size": 16, "data.remainder": "short", "data.workers": 0,
    "objective.min_snr_gamma": None, "objective.min_snr_form": "prediction", "objective.noise_offset": 0.0,
    "optim.optimizer.kind": "adamw", "optim.optimizer.betas": [0.9, 0.999], "optim.optimizer.weight_decay": 0.01,
    "optim.optimizer.eps": 1e-8, "optim.lr": 1e-4, "optim.schedule.kind": "constant",
    "optim.schedule.warmup_steps": 0, "optim.schedule.floor": 0.0, "optim.schedule.cycles": 1,
    "optim.schedule.power": 1.0, "optim.accumulation": 1, "optim.clip.norm": 1.0, "optim.clip.scope": "all",
    "optim.ema.rule": "none", "optim.ema.decay": 0.9999, "optim.ema.interval": 1, "optim.ema.device": "same",
    "run.epochs": 100, "run.seed": 0, "run.precision": "fp32", "run.weight_dtype": "fp32",
    "run.frozen_dtype": "fp32", "run.gradient_checkpointing.enabled": False, "run.save.every": "500 steps",
    "run.save.keep": None, "run.export.folder": "sd-model-finetuned", "run.folder": "sd-model-finetuned",
    "run.name": "sd-model-finetuned",
    "run.resume": "never", "run.preview.every": None, "run.preview.weights": "raw", "run.tensorboard": True,
    "sample.seed": 0, "sample.steps": 20, "sample.guidance": 7.5,
}  # fmt: skip

ACTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "pretrained_model_name_or_path": (["--pretrained_model_name_or_path=other"], {"model.path": "other"}),
    "revision": (["--pretrained_model_name_or_path=a/b", "--revision=fp16"], {"model.path": "a/b@fp16"}),
    "dataset_name": (["--dataset_name=me/images"], {"data.path": "me/images"}),
    "dataset_config_name": (["--dataset_config_name=small"], {"data.hub_config": "small"}),
    "train_data_dir": (["--train_data_dir=b"], {"data.path": "b"}),
    "image_column": (["--image_column=picture"], {"data.columns.image": "picture"}),
    "caption_column": (["--caption_column=words"], {"data.columns.caption": "words"}),
    "max_train_samples": (["--max_train_samples=7"], {"data.max_samples": 7}),
    "cache_dir": (["--cache_dir=/disk/hub"], {"data.hub_cache": "/disk/hub"}),
    "resolution": (["--resolution=768"], {"data.resolution": 768}),
    "center_crop": (["--center_crop"], {"data.crop": "center"}),
    "random_flip": (["--random_flip"], {"data.flip": 0.5}),
    "image_interpolation_mode": (["--image_interpolation_mode=nearest_exact"], {"data.resize": "nearest"}),
    "train_batch_size": (["--train_batch_size=3"], {"data.batch_size": 3}),
    "dataloader_num_workers": (["--dataloader_num_workers=4"], {"data.workers": 4}),
    "num_train_epochs": (["--num_train_epochs=2"], {"run.epochs": 2}),
    "max_train_steps": (["--max_train_steps=11"], {"run.steps": 11, "run.epochs": "gone"}),
    "gradient_accumulation_steps": (["--gradient_accumulation_steps=4"], {"optim.accumulation": 4}),
    "gradient_checkpointing": (["--gradient_checkpointing"], {"run.gradient_checkpointing.enabled": True}),
    "learning_rate": (["--learning_rate=1e-05"], {"optim.lr": 1e-5}),
    "scale_lr": (
        ["--scale_lr", "--train_batch_size=2", "--gradient_accumulation_steps=3"],
        {"optim.lr": pytest.approx(6e-4), "data.batch_size": 2, "optim.accumulation": 3},
    ),
    "lr_scheduler": (["--lr_scheduler=cosine"], {"optim.schedule.kind": "cosine", "optim.schedule.warmup_steps": 500}),
    "lr_warmup_steps": (
        ["--lr_scheduler=constant_with_warmup", "--lr_warmup_steps=9"],
        {"optim.schedule.warmup_steps": 9},
    ),
    "use_8bit_adam": (["--use_8bit_adam"], {"optim.optimizer.kind": "adamw-8bit"}),
    "adam_beta1": (["--adam_beta1=0.8"], {"optim.optimizer.betas": [0.8, 0.999]}),
    "adam_beta2": (["--adam_beta2=0.99"], {"optim.optimizer.betas": [0.9, 0.99]}),
    "adam_weight_decay": (["--adam_weight_decay=0"], {"optim.optimizer.weight_decay": 0.0}),
    "adam_epsilon": (["--adam_epsilon=1e-6"], {"optim.optimizer.eps": 1e-6}),
    "max_grad_norm": (["--max_grad_norm=0.5"], {"optim.clip.norm": 0.5}),
    "use_ema": (["--use_ema"], {"optim.ema.rule": "ramp", "run.preview.weights": "ema"}),
    "offload_ema": (["--offload_ema"], {"optim.ema.device": "cpu"}),
    "snr_gamma": (["--snr_gamma=5"], {"objective.min_snr_gamma": 5.0}),
    "noise_offset": (["--noise_offset=0.1"], {"objective.noise_offset": 0.1}),
    "input_perturbation": (["--input_perturbation=0.1"], {"objective.input_perturbation": 0.1}),
    "prediction_type": (["--prediction_type=v_prediction"], {"model.prediction": "v"}),
    "output_dir": (
        ["--output_dir=out/my model"],
        {"run.folder": "out/my model", "run.export.folder": "out/my model", "run.name": "my-model"},
    ),
    "seed": (["--seed=7"], {"run.seed": 7, "sample.seed": 7}),
    "mixed_precision": (["--mixed_precision=bf16"], {"run.precision": "bf16", "run.frozen_dtype": "same"}),
    "allow_tf32": (["--allow_tf32"], {"run.tf32": True}),
    "checkpointing_steps": (["--checkpointing_steps=50"], {"run.save.every": "50 steps"}),
    "checkpoints_total_limit": (["--checkpoints_total_limit=3"], {"run.save.keep": 3}),
    "resume_from_checkpoint": (["--resume_from_checkpoint=latest"], {"run.resume": "auto"}),
    "validation_prompts": (
        ["--validation_prompts", "a cat", "a dog"],
        {"sample.prompts": ["a cat", "a dog"], "run.preview.every": "5 epochs"},
    ),
    "validation_epochs": (
        ["--validation_prompts=a cat", "--validation_epochs=2"],
        {"sample.prompts": ["a cat"], "run.preview.every": "2 epochs"},
    ),
    "report_to": (
        ["--report_to=wandb"],
        {"run.tensorboard": False, "run.wandb.mode": "online", "run.wandb.project": "text2image-fine-tune"},
    ),
    "tracker_project_name": (
        ["--report_to=wandb", "--tracker_project_name=cats"],
        {"run.tensorboard": False, "run.wandb.mode": "online", "run.wandb.project": "cats"},
    ),
}  # fmt: skip

LINES = Lines(
    "diffusers-sd",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts=ACTS,
    impossible=(
        (["--resolution=500"], "--resolution"), (["--resolution=8"], "--resolution"),
        (["--train_batch_size=0"], "--train_batch_size"), (["--max_train_steps=0"], "--max_train_steps"),
        (["--num_train_epochs=0"], "--num_train_epochs"),
        (["--gradient_accumulation_steps=0"], "--gradient_accumulation_steps"),
        (["--max_train_samples=0"], "--max_train_samples"), (["--checkpointing_steps=0"], "--checkpointing_steps"),
        (["--checkpoints_total_limit=0"], "--checkpoints_total_limit"),
        (["--validation_prompts=a", "--validation_epochs=0"], "--validation_epochs"),
        (["--max_grad_norm=0"], "--max_grad_norm"), (["--lr_warmup_steps=-1"], "--lr_warmup_steps"),
        (["--seed=-1"], "--seed"), (["--lr_scheduler=polynomial", "--learning_rate=1e-8"], "--learning_rate"),
        (["--lr_scheduler=piecewise_constant"], "--lr_scheduler"), (["--report_to=comet_ml"], "--report_to"),
        (["--image_interpolation_mode=bicubicc"], "--image_interpolation_mode"),
        (["--adam_epsilon=0"], "--adam_epsilon"), (["--adam_beta2=1"], "--adam_beta2"),
        (["--dataloader_num_workers=-1"], "--dataloader_num_workers"), (["--snr_gamma=0"], "--snr_gamma"),
        (["--noise_offset=-1"], "--noise_offset"), (["--learning_rate=-1"], "--learning_rate"),
        (["--resolution=8192"], "--resolution"),
    ),
    later=AT_HEAD,
)  # fmt: skip
