"""Expectations of the flags of `mindone-sdxl`."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_lines import Lines

BAREST = ("--config=configs/training/sd_xl_base_finetune_910b.yaml", "--data_path=images")

DOCUMENTED: dict[str, Any] = {
    "version": "SDXL-base-1.0", "config": "configs/training/sd_xl_base_finetune_lora.yaml", "task": "txt2img",
    "cache_latent": False, "cache_text_embedding": False, "cache_path": "./cache_data",
    "gradient_accumulation_steps": 1, "clip_grad": False, "max_grad_norm": 1.0, "use_ema": False,
    "weight": "checkpoints/sd_xl_base_1.0_ms.ckpt", "per_batch_size": None, "scale_lr": False,
    "timestep_bias_strategy": None, "timestep_bias_multiplier": 1.0, "timestep_bias_begin": 0,
    "timestep_bias_end": 1000, "timestep_bias_portion": 0.25, "snr_gamma": None, "seed": 42,
    "sd_xl_base_ratios": "1.0", "data_path": "", "save_path": "./runs", "save_path_with_time": True,
    "log_interval": 1, "save_ckpt_only_rank_zero": False, "save_ckpt_interval": 1000, "max_num_ckpt": None,
    "resume_step": 0, "optimizer_weight": None, "save_optimizer": False, "data_sink": False, "sink_size": 1000,
    "sink_queue_size": -1, "dataset_load_tokenizer": True, "lpw": False, "max_embeddings_multiples": 3,
    "infer_during_train": False, "infer_interval": 1, "device_target": "Ascend", "ms_mode": 0, "ms_amp_level": "O2",
    "ms_enable_graph_kernel": False, "ms_enable_allreduce_fusion": True, "param_fp16": False,
    "overflow_still_update": True, "max_device_memory": None, "is_parallel": False, "enable_modelarts": False,
    "ckpt_url": "", "train_url": "", "multi_data_url": "", "pretrain_url": "", "ckpt_dir": "/cache/pretrain_ckpt/",
}  # fmt: skip

LATER: dict[str, Any] = {"jit_level": "O2", "dynamic_shape": False}

EXPECTED: dict[str, Any] = {
    "schema": 1,
    "model.family": "sdxl", "model.path": "checkpoints/sd_xl_base_1.0_ms.ckpt", "model.train": ["denoiser"],
    "model.prediction": "epsilon", "model.attention": "auto",
    "data.path": "images", "data.format": "mindone", "data.resolution": 1024, "data.buckets.shape": "square",
    "data.buckets.step": 64, "data.crop": "random", "data.flip": 0.0, "data.resize": "bicubic",
    "data.antialias": False, "data.original_size": "stored", "data.small_images": "upscale", "data.workers": 2,
    "data.shuffle": True, "data.remainder": "drop", "data.batch_size": 1, "data.captions.dropout": 0.0,
    "data.captions.dropped": "empty", "data.captions.missing": "empty", "data.cache.latents": False,
    "data.cache.text": False,
    "objective.noise_levels": "timesteps", "objective.weighting": "prediction", "objective.loss": "mse",
    "objective.noise_offset": 0.05, "objective.noise_offset_per": "sample", "objective.min_snr_gamma": None,
    "objective.min_snr_form": "x0", "objective.timestep_bias.strategy": "none",
    "objective.timestep_bias.multiplier": 1.0, "objective.timestep_bias.begin": 0,
    "objective.timestep_bias.end": 1000, "objective.timestep_bias.portion": 0.25,
    "optim.optimizer.kind": "adam-weight-decay", "optim.optimizer.betas": [0.9, 0.999],
    "optim.optimizer.eps": 1e-6, "optim.optimizer.weight_decay": 0.01, "optim.optimizer.no_decay": ["@mindone"],
    "optim.lr": 1e-6, "optim.schedule.kind": "constant", "optim.schedule.warmup_steps": 500,
    "optim.accumulation": 1, "optim.clip.norm": None, "optim.ema.rule": "none", "optim.ema.decay": 0.9999,
    "run.steps": 100000, "run.folder": "./runs/{stamp}", "run.name": "SDXL-base-1.0", "run.resume": "never",
    "run.export.link": "weights", "run.export.single_file": True,
    "run.export.name": "{what}_{micro_step}{ema}", "run.export.every": "1000 steps",
    "run.save.every": "1000 steps", "run.save.keep": None, "run.export.optimizer_file": None,
    "run.log_every": 1, "run.preview.every": None, "run.seed": 42,
    "run.precision": "fp16", "run.half_precision": "most", "run.frozen_dtype": "same", "run.weight_dtype": "fp32",
    "run.vae_dtype": "fp32", "run.scaler.kind": "static", "run.scaler.init": 1024.0,
    "run.gradient_checkpointing.enabled": True,
    "run.device": "auto", "run.runtime": "auto",
    "sample.seed": 42, "sample.steps": 40, "sample.guidance": 5.0, "sample.solver": "euler",
}  # fmt: skip

ACTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "version": (["--version=SDXL-refiner-1.0"], {"run.name": "SDXL-refiner-1.0"}),
    "weight": (["--weight=mine.safetensors"], {"model.path": "mine.safetensors"}),
    "task": (["--task=cache", "--cache_latent=True"], {"data.cache.latents": True, "data.cache.path": "./cache_data"}),
    "cache_latent": (["--cache_latent", "True"], {"data.cache.latents": True, "data.cache.path": "./cache_data"}),
    "cache_text_embedding": (
        ["--cache_text_embedding", "True"], {"data.cache.text": True, "data.cache.path": "./cache_data"},
    ),
    "cache_path": (
        ["--cache_text_embedding=True", "--cache_path=there"], {"data.cache.text": True, "data.cache.path": "there"},
    ),
    "gradient_accumulation_steps": (
        ["--gradient_accumulation_steps=4"],
        {
            "optim.accumulation": 4, "optim.schedule.warmup_steps": 125, "run.steps": 25000,
            "run.save.every": "250 steps", "run.export.every": "250 steps",
        },
    ),
    "clip_grad": (["--clip_grad", "True"], {"optim.clip.norm": 1.0, "optim.clip.scope": "tensor"}),
    "max_grad_norm": (
        ["--clip_grad=True", "--max_grad_norm=0.5"], {"optim.clip.norm": 0.5, "optim.clip.scope": "tensor"},
    ),
    "use_ema": (["--use_ema"], {"optim.ema.rule": "saturating"}),
    "per_batch_size": (["--per_batch_size=6"], {"data.batch_size": 6}),
    "scale_lr": (["--scale_lr=True", "--per_batch_size=3"], {"data.batch_size": 3, "optim.lr": pytest.approx(3e-6)}),
    "timestep_bias_strategy": (["--timestep_bias_strategy=earlier"], {"objective.timestep_bias.strategy": "earlier"}),
    "timestep_bias_multiplier": (["--timestep_bias_multiplier=2"], {"objective.timestep_bias.multiplier": 2.0}),
    "timestep_bias_begin": (["--timestep_bias_begin=200"], {"objective.timestep_bias.begin": 200}),
    "timestep_bias_end": (["--timestep_bias_end=500"], {"objective.timestep_bias.end": 500}),
    "timestep_bias_portion": (["--timestep_bias_portion=0.5"], {"objective.timestep_bias.portion": 0.5}),
    "snr_gamma": (["--snr_gamma", "5.0"], {"objective.min_snr_gamma": 5.0}),
    "seed": (["--seed=7"], {"run.seed": 7, "sample.seed": 7}),
    "sd_xl_base_ratios": (
        ["--infer_during_train=True", "--sd_xl_base_ratios=1.46", "--infer_interval=100"],
        {
            "sample.size": [1216, 832], "run.preview.every": "100 steps",
            "sample.prompts": ["Astronaut in a jungle, cold color palette, muted colors, detailed, 8k"],
        },
    ),
    "data_path": (["--data_path=elsewhere"], {"data.path": "elsewhere"}),
    "save_path": (["--save_path=out/"], {"run.folder": "out/{stamp}"}),
    "save_path_with_time": (["--save_path_with_time", "False"], {"run.folder": "./runs"}),
    "log_interval": (["--log_interval=10"], {"run.log_every": 10}),
    "save_ckpt_interval": (["--save_ckpt_interval=50"], {"run.save.every": "50 steps", "run.export.every": "50 steps"}),
    "max_num_ckpt": (["--max_num_ckpt=3"], {"run.save.keep": 3}),
    "resume_step": (["--resume_step=1000"], {"run.start.step": 1000}),
    "optimizer_weight": (
        ["--resume_step=1000", "--optimizer_weight=optimizer.ckpt"],
        {"run.start.step": 1000, "run.start.optimizer": "optimizer.ckpt"},
    ),
    "save_optimizer": (["--save_optimizer=True"], {"run.export.optimizer_file": "mindone"}),
    "data_sink": (["--data_sink", "True"], {"run.device_prefetch": 10}),
    "sink_queue_size": (["--data_sink=True", "--sink_queue_size=2"], {"run.device_prefetch": 2}),
    "infer_during_train": (
        ["--infer_during_train=True"],
        {
            "sample.size": [1024, 1024], "run.preview.every": "1 steps",
            "sample.prompts": ["Astronaut in a jungle, cold color palette, muted colors, detailed, 8k"],
        },
    ),
    "infer_interval": (
        ["--infer_during_train=True", "--infer_interval=9"],
        {
            "sample.size": [1024, 1024], "run.preview.every": "9 steps",
            "sample.prompts": ["Astronaut in a jungle, cold color palette, muted colors, detailed, 8k"],
        },
    ),
    "device_target": (["--device_target=CPU"], {"run.device": "cpu"}),
    "ms_amp_level": (
        ["--ms_amp_level=O0"],
        {"run.precision": "fp32", "run.frozen_dtype": "fp32", "run.vae_dtype": "gone"},
    ),
    "param_fp16": (["--param_fp16", "True"], {"run.weight_dtype": "same", "run.gradient_dtype": "same"}),
    "max_device_memory": (["--max_device_memory", "59GB"], {"run.memory_limit": "59GB"}),
}  # fmt: skip

LINES = Lines(
    "mindone-sdxl",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts=ACTS,
    impossible=(
        (["--gradient_accumulation_steps=0"], "--gradient_accumulation_steps"),
        (["--per_batch_size=0"], "--per_batch_size"), (["--clip_grad=True", "--max_grad_norm=0"], "--max_grad_norm"),
        (["--seed=-1"], "--seed"), (["--save_ckpt_interval=0"], "--save_ckpt_interval"),
        (["--log_interval=0"], "--log_interval"), (["--max_num_ckpt=0"], "--max_num_ckpt"),
        (["--resume_step=-1"], "--resume_step"),
        (["--infer_during_train=True", "--infer_interval=0"], "--infer_interval"),
        (["--sink_queue_size=0"], "--sink_queue_size"), (["--sd_xl_base_ratios=1.5"], "--sd_xl_base_ratios"),
        (["--lpw=True"], "--lpw"), (["--data_path="], "--data_path"),
        (["--timestep_bias_strategy=latter"], "--timestep_bias_strategy"),
        (["--timestep_bias_multiplier=0"], "--timestep_bias_multiplier"),
        (["--timestep_bias_end=1001"], "--timestep_bias_end"), (["--snr_gamma=0"], "--snr_gamma"),
        (["--max_device_memory=plenty"], "--max_device_memory"),
        (["--optimizer_weight=optimizer.ckpt"], "--optimizer_weight"), (["--weigth=x"], "--weigth"),
        (["--config=configs/training/sd_xl_base_finetune_lora.yaml"], "--config"),
        (["--config=configs/training/mine.yaml"], "--config"),
    ),
    later=LATER,
    elsewhere=frozenset(("is_parallel", "config")),
)  # fmt: skip
