"""Expectations of the flags of `everydream2`."""

from __future__ import annotations

from typing import Any

from foreign_lines import Lines

BAREST = ("--resume_ckpt=sd15",)

PATH = "logs/myproj-{stamp}"

DOCUMENTED: dict[str, Any] = {
    # the reference's settings with their defaults; loss_type as the decision page has it
    "config": None, "amp": True, "attn_type": "sdp", "batch_size": 2, "ckpt_every_n_minutes": None,
    "clip_grad_norm": None, "clip_skip": 0, "cond_dropout": 0.04, "data_root": "input", "disable_amp": False,
    "disable_textenc_training": False, "disable_unet_training": False, "embedding_perturbation": 0.0, "flip_p": 0.0,
    "gpuid": 0, "gradient_checkpointing": False, "grad_accum": 1, "logdir": "logs", "log_step": 25, "loss_type": "mse",
    "lr": None, "lr_decay_steps": 0, "lr_scheduler": "constant", "lr_warmup_steps": None, "max_epochs": 300,
    "no_prepend_last": False, "no_save_ckpt": False, "optimizer_config": "optimizer.json", "plugins": None,
    "project_name": "myproj", "resolution": 512, "resume_ckpt": "sd_v1-5_vae.ckpt", "run_name": None,
    "sample_prompts": "sample_prompts.txt", "sample_steps": 250, "save_ckpt_dir": None, "save_every_n_epochs": None,
    "save_ckpts_from_n_epochs": 0, "save_full_precision": False, "save_optimizer": False, "seed": 555,
    "shuffle_tags": False, "keep_tags": 0, "timestep_start": 0, "timestep_end": 1000, "train_sampler": "ddpm",
    "wandb": False, "validation_config": None, "write_schedule": False, "rated_dataset": False,
    "rated_dataset_target_dropout_percent": 50, "rated_dataset_target_dropout_rate": None,
    "zero_frequency_noise_ratio": 0.02, "enable_zero_terminal_snr": False,
    "load_settings_every_epoch": False, "min_snr_gamma": None, "pyramid_noise_discount": None, "ema_decay_rate": None,
    "ema_strength_target": None, "ema_update_interval": 500, "ema_device": "cpu", "ema_sample_nonema_model": False,
    "ema_sample_ema_model": False, "ema_resume_model": None,
    # named in its files without effect, or gone, or old names
    "notebook": False, "lowvram": False, "disable_xformers": False, "useadam8bit": False, "ed1_mode": False,
    "scale_lr": False, "hf_repo_subfolder": None, "ema_decay_target": None, "ema_decay_interval": None,
    "ema_decay_device": None, "ema_decay_sample_raw_training": False, "ema_decay_sample_ema_model": False,
    "ema_decay_resume_model": None,
}  # fmt: skip

EXPECTED: dict[str, Any] = {
    "schema": 1,
    "model.path": "sd15", "model.family": "sd", "model.train": ["denoiser", "text_encoder"], "model.clip_skip": 0,
    "model.attention": "auto",
    "data.path": "input", "data.format": "everydream", "data.resolution": 512, "data.buckets.shape": "table",
    "data.batch_size": 2, "data.remainder": "repeat", "data.remainder_power": 1.5, "data.crop": "triangular",
    "data.jitter": 0.02, "data.resize": "bicubic", "data.flip": 0.0, "data.epoch_seed": "add",
    "data.captions.dropout": 0.04, "data.captions.shuffle_tags": False, "data.captions.keep_tags": 0,
    "objective.loss": "mse", "objective.huber_delta": 1.0, "objective.noise_offset": 0.02,
    "objective.pyramid_discount": 0.0, "objective.embedding_perturbation": 0.0, "objective.zero_terminal_snr": False,
    "objective.min_snr_gamma": None, "objective.min_snr_form": "ratio", "objective.timesteps": [0, 1000],
    "optim.lr": 1e-6, "optim.part_lr.text_encoder": 5e-7, "optim.lr_batch_power": 0.0,
    "optim.optimizer.kind": "adamw-8bit-or-adamw", "optim.optimizer.betas": [0.9, 0.999], "optim.optimizer.eps": 1e-8,
    "optim.optimizer.weight_decay": 0.01, "optim.schedule.kind": "constant", "optim.schedule.warmup_steps": 0,
    "optim.schedule.warmup_ratio": 0.0, "optim.schedule.after_decay": "floor", "optim.schedule.floor": 0.0,
    "optim.accumulation": 1, "optim.clip.norm": None, "optim.clip.scope": "part", "optim.ema.rule": "none",
    "run.name": "myproj", "run.folder": PATH, "run.epochs": 300, "run.seed": 555, "run.resume": "never",
    "run.precision": "fp16", "run.weight_dtype": "fp32", "run.frozen_dtype": "same", "run.tf32": True,
    "run.gradient_checkpointing.enabled": False, "run.scaler.init": 2**17.5, "run.scaler.growth": 2.0,
    "run.scaler.growth_interval": 25, "run.scaler.stages": [
        [500, 1.8, 100], [1000, 1.6, 200], [2000, 1.3, 500], [4000, 1.15, 2000]],
    "run.log_every": 25, "run.tensorboard": True, "run.schedule_file": False,
    "run.save.every": ["20 minutes"], "run.export.every": ["20 minutes"], "run.export.from_epoch": 0,
    "run.export.name": "{last}{name}-ep{epoch:02}-gs{micro_step:05}{ema}", "run.export.link": "ckpts",
    "run.export.when_stopped": True, "run.export.single_file": True,
    "run.export.single_file_dtype": "fp16", "run.export.single_file_folder": ".",
    "run.preview.every": "250 steps", "run.preview.weights": "raw", "run.validation.every": None,
    "sample.seed": 555, "sample.steps": 30, "sample.guidance": [7.0, 4.0, 1.01], "sample.solver": "ddim",
    "sample.guidance_rescale": 0.0, "sample.batch_size": 1,
}  # fmt: skip

EMA = {"optim.ema.rule": "constant", "optim.ema.interval": 500, "optim.ema.device": "cpu"}

SHADOW = EMA | {"run.preview.weights": "ema"}

RATE = {"optim.ema.decay": 0.99}

ON = "--ema_decay_rate=0.99"

FILE = "--config=train.json"

COSINE = {
    "optim.schedule.kind": "cosine", "optim.schedule.warmup_ratio": 0.02, "optim.schedule.decay_ratio": 1.5,
    "optim.schedule.after_decay": "cosine",
}  # fmt: skip

TEXT = {"optim.part_lr.text_encoder": "gone"}

ACTS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "config": (
        [FILE, "--load_settings_every_epoch"],
        {"run.live.path": "train.json", "run.live.dialect": "everydream2",
         "run.live.line": [*BAREST, FILE, "--load_settings_every_epoch"]},
    ),
    "load_settings_every_epoch": (["--load_settings_every_epoch"], {}),
    "data_root": (["--data_root=my images"], {"data.path": "my images"}),
    "resolution": (["--resolution=768"], {"data.resolution": 768}),
    "batch_size": (["--batch_size=6"], {"data.batch_size": 6, "sample.batch_size": 3}),
    "flip_p": (["--flip_p=0.5"], {"data.flip": 0.5}),
    "cond_dropout": (["--cond_dropout", "0.1"], {"data.captions.dropout": 0.1}),
    "shuffle_tags": (["--shuffle_tags"], {"data.captions.shuffle_tags": True}),
    "keep_tags": (["--shuffle_tags", "--keep_tags=4"],
                  {"data.captions.shuffle_tags": True, "data.captions.keep_tags": 4}),
    "rated_dataset": (["--rated_dataset", "--max_epochs=10"],
                      {"data.rating.fraction": 0.5, "data.rating.epochs": 10, "run.epochs": 10}),
    "rated_dataset_target_dropout_percent": (
        ["--rated_dataset", "--rated_dataset_target_dropout_percent=30"],
        {"data.rating.fraction": 0.3, "data.rating.epochs": 300}),
    "rated_dataset_target_dropout_rate": (
        ["--rated_dataset", "--rated_dataset_target_dropout_rate=30"],
        {"data.rating.fraction": 0.3, "data.rating.epochs": 300}),
    "validation_config": (["--validation_config=none.json"], {"run.validation.every": "1 epochs",
                          "data.holdout.max_samples": 1_000_000, "data.holdout.fraction": 0.15}),
    "write_schedule": (["--write_schedule"], {"run.schedule_file": True, "run.schedule_place": "run"}),
    "wandb": (["--wandb"], {"run.wandb.mode": "online", "run.wandb.project": "myproj"}),
    "resume_ckpt": (["--resume_ckpt=findlast"], {"model.path": PATH, "run.resume": "latest"}),
    "clip_skip": (["--clip_skip=2"], {"model.clip_skip": 1}),
    "attn_type": (["--attn_type=xformers"], {"model.attention": "xformers"}),
    "disable_textenc_training": (["--disable_textenc_training"], {"model.train": ["denoiser"], **TEXT}),
    "disable_unet_training": (["--disable_unet_training"], {"model.train": ["text_encoder"], "optim.lr": 5e-7, **TEXT}),
    "gradient_checkpointing": (["--gradient_checkpointing"], {"run.gradient_checkpointing.enabled": True}),
    "loss_type": (["--loss_type=mse_huber"], {"objective.loss": "mse-huber"}),
    "min_snr_gamma": (["--min_snr_gamma=5"], {"objective.min_snr_gamma": 5.0}),
    "zero_frequency_noise_ratio": (["--zero_frequency_noise_ratio=0.1"], {"objective.noise_offset": 0.1}),
    "enable_zero_terminal_snr": (["--enable_zero_terminal_snr"],
                                 {"objective.zero_terminal_snr": True, "sample.guidance_rescale": 0.7}),
    "pyramid_noise_discount": (["--pyramid_noise_discount=0.03"], {"objective.pyramid_discount": 0.03}),
    "embedding_perturbation": (["--embedding_perturbation=0.1"], {"objective.embedding_perturbation": 0.1}),
    "timestep_start": (["--timestep_start=100"], {"objective.timesteps": [100, 1000]}),
    "timestep_end": (["--timestep_end=900"], {"objective.timesteps": [0, 900]}),
    "lr": (["--lr=3e-6"], {"optim.lr": 3e-6, "optim.part_lr.text_encoder": "gone"}),
    "lr_scheduler": (["--lr_scheduler=cosine"], COSINE),
    "lr_warmup_steps": (["--lr_scheduler=cosine", "--lr_warmup_steps=9"],
                        {k: v for k, v in COSINE.items() if k != "optim.schedule.warmup_ratio"}
                        | {"optim.schedule.warmup_steps": 9}),
    "lr_decay_steps": (["--lr_scheduler=cosine", "--lr_decay_steps=2500"],
                       {k: v for k, v in COSINE.items() if k != "optim.schedule.decay_ratio"}
                       | {"optim.schedule.decay_steps": 2500}),
    "scale_lr": (["--scale_lr"], {"optim.lr_batch_power": 0.55}),
    "optimizer_config": (["--optimizer_config=adamw.json"], {"optim.optimizer.kind": "adamw", **TEXT}),
    "grad_accum": (
        ["--grad_accum=4"],
        {"optim.accumulation": 4, "run.log_every": 7, "run.preview.every": "63 steps", "run.scaler.stages": [
            [125, 1.8, 100], [250, 1.6, 200], [500, 1.3, 500], [1000, 1.15, 2000]]}),
    "clip_grad_norm": (["--clip_grad_norm=1.0"], {"optim.clip.norm": 1.0}),
    "ema_decay_rate": ([ON], SHADOW | RATE),
    "ema_strength_target": (["--ema_strength_target=0.1"], SHADOW | {"optim.ema.strength": 0.1}),
    "ema_update_interval": ([ON, "--ema_update_interval=50"], SHADOW | RATE | {"optim.ema.interval": 50}),
    "ema_device": ([ON, "--ema_device=cuda"], SHADOW | RATE | {"optim.ema.device": "same"}),
    "ema_sample_nonema_model": ([ON, "--ema_sample_nonema_model"], EMA | RATE),
    "ema_sample_ema_model": ([ON, "--ema_sample_nonema_model", "--ema_sample_ema_model"],
                             EMA | RATE | {"run.preview.weights": "both"}),
    "ema_resume_model": ([ON, "--ema_resume_model=m_ema"], SHADOW | RATE | {"optim.ema.start": "m_ema"}),
    "ema_decay_target": (["--ema_decay_target=0.1"], SHADOW | {"optim.ema.strength": 0.1}),
    "ema_decay_interval": ([ON, "--ema_decay_interval=50"], SHADOW | RATE | {"optim.ema.interval": 50}),
    "ema_decay_device": ([ON, "--ema_decay_device=cuda"], SHADOW | RATE | {"optim.ema.device": "same"}),
    "ema_decay_resume_model": ([ON, "--ema_decay_resume_model=findlast"], SHADOW | RATE | {"optim.ema.start": PATH}),
    "ema_decay_sample_raw_training": ([ON, "--ema_decay_sample_raw_training"], EMA | RATE),
    "ema_decay_sample_ema_model": ([ON, "--ema_decay_sample_ema_model"], SHADOW | RATE),
    "project_name": (["--project_name=my fox"], {"run.name": "my-fox", "run.folder": "logs/my-fox-{stamp}"}),
    "logdir": (["--logdir=/disk/mylogs/"], {"run.folder": "/disk/mylogs/myproj-{stamp}"}),
    "max_epochs": (["--max_epochs=30"], {"run.epochs": 30}),
    "seed": (["--seed=-1"], {"run.seed": -1, "sample.seed": -1}),
    "disable_amp": (["--disable_amp"], {"run.precision": "fp32"}),
    "ckpt_every_n_minutes": (["--ckpt_every_n_minutes=30"],
                             {"run.save.every": ["30 minutes"], "run.export.every": ["30 minutes"]}),
    "save_every_n_epochs": (["--save_every_n_epochs=5"],
                            {"run.save.every": ["5 epochs"], "run.export.every": ["5 epochs"]}),
    "save_ckpts_from_n_epochs": (["--save_ckpts_from_n_epochs=10"], {"run.export.from_epoch": 10}),
    "save_full_precision": (["--save_full_precision"], {"run.export.single_file_dtype": "fp32"}),
    "save_ckpt_dir": ([r"--save_ckpt_dir=r:\webui\models"], {"run.export.single_file_folder": r"r:\webui\models"}),
    "no_save_ckpt": (["--no_save_ckpt"], {"run.export.single_file": False}),
    "no_prepend_last": (["--no_prepend_last"], {"run.export.name": "{name}-ep{epoch:02}-gs{micro_step:05}{ema}"}),
    "log_step": (["--log_step=50"], {"run.log_every": 50}),
    "sample_steps": (["--sample_steps=100"], {"run.preview.every": "100 steps"}),
    "sample_prompts": (["--sample_prompts=my.json"], {"sample.prompt_file": "my.json"}),
}  # fmt: skip


FILES = {"train.json": "{}", "none.json": "{}", "adamw.json": '{"base": {"optimizer": "adamw"}}'}

LINES = Lines(
    "everydream2",
    barest=BAREST,
    defaults=DOCUMENTED,
    settings=EXPECTED,
    acts=ACTS,
    impossible=(
        (["--clip_skip=9"], "--clip_skip"), (["--clip_skip=-1"], "--clip_skip"),
        (["--ema_device=gpu", ON], "--ema_device"), (["--attn_type=sdpa"], "--attn_type"),
        (["--loss_type=l1"], "--loss_type"), (["--resolution=128"], "--resolution"),
        (["--resolution=1216"], "--resolution"), (["--batch_size=0"], "--batch_size"),
        (["--grad_accum=0"], "--grad_accum"), (["--max_epochs=0"], "--max_epochs"), (["--seed=-2"], "--seed"),
        (["--keep_tags=-1"], "--keep_tags"), (["--log_step=0"], "--log_step"), (["--sample_steps=0"], "--sample_steps"),
        (["--clip_grad_norm=0"], "--clip_grad_norm"),
        (["--lr_scheduler=cosine", "--lr_warmup_steps=-1"], "--lr_warmup_steps"),
        (["--lr_scheduler=cosine", "--lr_warmup_steps=9", "--lr_decay_steps=9"], "--lr_decay_steps"),
        (["--lr_scheduler=polynomial", "--lr=1e-8"], "--lr"),
        (["--disable_unet_training", "--disable_textenc_training"], "--disable_unet_training", "E1018"),
        (["--ema_decay=1"], "--ema_decay", "E1016"), (["--learning_rate=1"], "--learning_rate", "E1016"),
        (["--ema_decay_rate=1.5"], "--ema_decay_rate"), (["--ema_strength_target=1"], "--ema_strength_target"),
        ([ON, "--ema_update_interval=0"], "--ema_update_interval"), (["--flip_p=2"], "--flip_p"),
        (["--cond_dropout=-1"], "--cond_dropout"), (["--min_snr_gamma=0"], "--min_snr_gamma"),
        (["--pyramid_noise_discount=1"], "--pyramid_noise_discount"), (["--lr=-1"], "--lr"),
    ),
    files=FILES,
)  # fmt: skip
