"""Settings by the names that other trainers give them: one table for mistyped recipes, for `explain` and for hints.

Whole command lines of other trainers are read by `dialects`; this is for a single word that somebody has in mind.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

KOHYA, DIFFUSERS, ONE, SIMPLE, EVERY = "kohya", "diffusers", "OneTrainer", "SimpleTuner", "EveryDream2"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A name of other trainers. path: our setting or section, None where there is none. origins: who calls it so. note:
    how the values differ, or what to do instead; a sentence without its full stop, "" when nothing differs."""

    path: str | None
    origins: tuple[str, ...]
    note: str = ""

    @property
    def origin(self) -> str:
        """`kohya`, `kohya and diffusers`, `kohya, diffusers and OneTrainer`."""
        *most, last = self.origins
        return f"{', '.join(most)} and {last}" if most else last


def foreign(name: str) -> Foreign | None:
    """What a name means that another trainer uses, or None. name: with or without dashes, in any spelling:
    `--learning_rate`, `learning-rate`, `learningRate`."""
    spelled = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name.lstrip("-")).lower().replace("-", "_")
    return FOREIGN_NAMES.get(spelled)


def value_of(setting: str, value: object) -> str | None:
    """What a setting takes for a word that another trainer would write there, or None: `fp32` for run.precision=no."""
    word = re.sub(r"[\s_]+", "-", str(value).strip().lower())
    return _VALUES.get(setting, {}).get(word)


_REPEATS = (
    "pictures of a class beside yours are another folder of data.path, and data.repeats says how often each is seen"
)
_MASKS = "masks are not read, the loss is of whole pictures"
_ADAPTER = "adapters such as LoRA are not trained, the weights themselves are"
_TORCHS = "torch's own attention is the default, and spares as much memory"

FOREIGN_NAMES: Mapping[str, Foreign] = MappingProxyType(
    {
        # the model
        "pretrained_model_name_or_path": Foreign("model.path", (KOHYA, DIFFUSERS, SIMPLE)),
        "base_model_name": Foreign("model.path", (ONE,)),
        "resume_ckpt": Foreign("model.path", (EVERY,)),
        "model_family": Foreign("model.family", (SIMPLE,)),
        "pretrained_vae_model_name_or_path": Foreign("model.vae", (DIFFUSERS, SIMPLE)),
        "v2": Foreign("model.path", (KOHYA,), "SD 2.x is told from its files, nothing has to be said"),
        "v_parameterization": Foreign("model.prediction", (KOHYA,), "v_parameterization is prediction=v"),
        "force_v_prediction": Foreign("model.prediction", (ONE,), "force_v_prediction is prediction=v"),
        "prediction_type": Foreign("model.prediction", (DIFFUSERS, SIMPLE), "v_prediction is v"),
        "clip_skip": Foreign("model.clip_skip", (KOHYA, EVERY), "clip_skip=N there is N−1 here"),
        "train_text_encoder": Foreign(
            "model.train", (DIFFUSERS, SIMPLE), "write model.train=[denoiser, text_encoder]"
        ),
        "disable_textenc_training": Foreign("model.train", (EVERY,), "write model.train=denoiser"),
        "xformers": Foreign("model.attention", (KOHYA,), _TORCHS),
        "enable_xformers_memory_efficient_attention": Foreign("model.attention", (DIFFUSERS,), _TORCHS),
        "sdpa": Foreign("model.attention", (KOHYA,), "sdpa is torch's own attention, which is the default"),
        "mem_eff_attn": Foreign("model.attention", (KOHYA,), _TORCHS),
        "attn_type": Foreign("model.attention", (EVERY,), "sdp is auto, which is the default"),
        "attention_mechanism": Foreign("model.attention", (ONE, SIMPLE)),
        "network_dim": Foreign(None, (KOHYA,), _ADAPTER),
        "network_module": Foreign(None, (KOHYA,), _ADAPTER),
        # pictures and captions
        "train_data_dir": Foreign("data.path", (KOHYA, DIFFUSERS)),
        "instance_data_dir": Foreign("data.path", (DIFFUSERS, SIMPLE)),
        "data_root": Foreign("data.path", (EVERY,)),
        "dataset_name": Foreign("data.path", (DIFFUSERS,), "with data.format=metadata"),
        "reg_data_dir": Foreign(None, (KOHYA,), _REPEATS),
        "class_data_dir": Foreign(None, (DIFFUSERS,), _REPEATS),
        "prior_loss_weight": Foreign(None, (KOHYA, DIFFUSERS), _REPEATS),
        "masked_loss": Foreign(None, (KOHYA,), _MASKS),
        "masked_training": Foreign(None, (ONE,), _MASKS),
        "num_repeats": Foreign("data.repeats", (KOHYA,)),
        "dataset_repeats": Foreign("data.repeats", (KOHYA,)),
        "train_batch_size": Foreign(
            "data.batch_size", (KOHYA, DIFFUSERS, SIMPLE), "there it is of each device, here of all devices together"
        ),
        "batch_size": Foreign("data.batch_size", (ONE, EVERY)),
        "resolution": Foreign("data.resolution", (KOHYA, DIFFUSERS, ONE, SIMPLE, EVERY)),
        "enable_bucket": Foreign(
            "data.buckets.shape", (KOHYA,), "buckets are on by default, shape=square takes one size for all"
        ),
        "aspect_ratio_bucketing": Foreign(
            "data.buckets.shape", (ONE,), "buckets are on by default, shape=square takes one size for all"
        ),
        "bucket_reso_steps": Foreign("data.buckets.step", (KOHYA,)),
        "aspect_bucket_alignment": Foreign("data.buckets.step", (SIMPLE,)),
        "bucket_no_upscale": Foreign("data.small", (KOHYA,), "small=skip leaves small pictures out"),
        "random_crop": Foreign("data.crop", (KOHYA,), "random_crop is crop=random"),
        "center_crop": Foreign("data.crop", (DIFFUSERS,), "center_crop is crop=center"),
        "flip_aug": Foreign("data.flip", (KOHYA,), "flip_aug is flip=0.5"),
        "random_flip": Foreign("data.flip", (DIFFUSERS,), "random_flip is flip=0.5"),
        "flip_p": Foreign("data.flip", (EVERY,)),
        "caption_extension": Foreign("data.captions.source", (KOHYA,), "both .txt and .caption are read"),
        "shuffle_caption": Foreign("data.captions.shuffle_tags", (KOHYA,)),
        "keep_tokens": Foreign("data.captions.keep_tags", (KOHYA,), "keep_tokens=N is keep_tags=N−1"),
        "caption_dropout_rate": Foreign("data.captions.dropout", (KOHYA,)),
        "caption_dropout_probability": Foreign("data.captions.dropout", (SIMPLE,)),
        "proportion_empty_prompts": Foreign("data.captions.dropout", (DIFFUSERS,)),
        "cond_dropout": Foreign("data.captions.dropout", (EVERY,)),
        "cache_latents": Foreign("data.cache.latents", (KOHYA,)),
        "cache_latents_to_disk": Foreign("data.cache.latents", (KOHYA,), "a cache always lies on the disk"),
        "latent_caching": Foreign("data.cache.latents", (ONE,)),
        "cache_text_encoder_outputs": Foreign("data.cache.text", (KOHYA,)),
        "max_data_loader_n_workers": Foreign("data.workers", (KOHYA,)),
        "dataloader_num_workers": Foreign("data.workers", (DIFFUSERS,)),
        "dataloader_threads": Foreign("data.workers", (ONE,)),
        "max_train_samples": Foreign("data.max_samples", (DIFFUSERS,)),
        # the mathematics
        "loss_type": Foreign("objective.loss", (KOHYA, EVERY), "l2 is mse"),
        "huber_c": Foreign("objective.huber_delta", (KOHYA,)),
        "min_snr_gamma": Foreign("objective.min_snr_gamma", (KOHYA, EVERY)),
        "snr_gamma": Foreign("objective.min_snr_gamma", (DIFFUSERS, SIMPLE)),
        "noise_offset": Foreign("objective.noise_offset", (KOHYA, DIFFUSERS)),
        "offset_noise_weight": Foreign("objective.noise_offset", (ONE,)),
        "zero_frequency_noise_ratio": Foreign("objective.noise_offset", (EVERY,)),
        "ip_noise_gamma": Foreign("objective.input_perturbation", (KOHYA,)),
        "perturbation_noise_weight": Foreign("objective.input_perturbation", (ONE,)),
        "input_perturbation": Foreign("objective.input_perturbation", (DIFFUSERS, SIMPLE)),
        "multires_noise_iterations": Foreign(
            "objective.pyramid_discount", (KOHYA,), "there are as many levels as the picture has"
        ),
        "multires_noise_discount": Foreign("objective.pyramid_discount", (KOHYA,)),
        "zero_terminal_snr": Foreign("objective.zero_terminal_snr", (KOHYA,)),
        "rescale_betas_zero_snr": Foreign("objective.zero_terminal_snr", (SIMPLE,)),
        "rescale_noise_scheduler_to_zero_terminal_snr": Foreign("objective.zero_terminal_snr", (ONE,)),
        "enable_zero_terminal_snr": Foreign("objective.zero_terminal_snr", (EVERY,)),
        "min_timestep": Foreign("objective.timesteps", (KOHYA,), "write objective.timesteps=[min, max]"),
        "max_timestep": Foreign("objective.timesteps", (KOHYA,), "write objective.timesteps=[min, max]"),
        # the update
        "learning_rate": Foreign("optim.lr", (KOHYA, DIFFUSERS, ONE, SIMPLE)),
        "lr": Foreign("optim.lr", (EVERY,)),
        "unet_lr": Foreign("optim.lr", (KOHYA,)),
        "text_encoder_lr": Foreign("optim.part_lr", (KOHYA,), "write optim.part_lr.text_encoder=1e-6"),
        "optimizer_type": Foreign("optim.optimizer.kind", (KOHYA,)),
        "optimizer_args": Foreign("optim.optimizer", (KOHYA,), "each is a setting of its own"),
        "use_8bit_adam": Foreign("optim.optimizer.kind", (KOHYA, DIFFUSERS), "use_8bit_adam is kind=adamw-8bit"),
        "adam_weight_decay": Foreign("optim.optimizer.weight_decay", (DIFFUSERS,)),
        "adam_epsilon": Foreign("optim.optimizer.eps", (DIFFUSERS,)),
        "adam_beta1": Foreign("optim.optimizer.betas", (DIFFUSERS,), "write optim.optimizer.betas=[beta1, beta2]"),
        "adam_beta2": Foreign("optim.optimizer.betas", (DIFFUSERS,), "write optim.optimizer.betas=[beta1, beta2]"),
        "lr_scheduler": Foreign(
            "optim.schedule.kind", (KOHYA, DIFFUSERS, SIMPLE, EVERY), "cosine_with_restarts is restarts"
        ),
        "learning_rate_scheduler": Foreign("optim.schedule.kind", (ONE,)),
        "lr_warmup_steps": Foreign("optim.schedule.warmup_steps", (KOHYA, DIFFUSERS, SIMPLE, EVERY)),
        "learning_rate_warmup_steps": Foreign("optim.schedule.warmup_steps", (ONE,)),
        "lr_decay_steps": Foreign("optim.schedule.decay_steps", (EVERY,)),
        "lr_scheduler_num_cycles": Foreign("optim.schedule.cycles", (KOHYA,)),
        "lr_num_cycles": Foreign("optim.schedule.cycles", (DIFFUSERS, SIMPLE)),
        "lr_scheduler_power": Foreign("optim.schedule.power", (KOHYA,)),
        "scale_lr": Foreign("optim.lr_batch_power", (DIFFUSERS, EVERY), "1 as diffusers scales, 0.55 as EveryDream2"),
        "gradient_accumulation_steps": Foreign("optim.accumulation", (KOHYA, DIFFUSERS, ONE, SIMPLE)),
        "grad_accum": Foreign("optim.accumulation", (EVERY,)),
        "max_grad_norm": Foreign("optim.clip.norm", (KOHYA, DIFFUSERS, SIMPLE)),
        "clip_grad_norm": Foreign("optim.clip.norm", (ONE, EVERY)),
        "use_ema": Foreign("optim.ema.rule", (DIFFUSERS, SIMPLE), "use_ema is rule=ramp"),
        "ema_decay_rate": Foreign("optim.ema.decay", (EVERY,)),
        "ema_update_interval": Foreign("optim.ema.interval", (SIMPLE, EVERY)),
        "offload_ema": Foreign("optim.ema.device", (DIFFUSERS,), "offload_ema is device=cpu"),
        # the run
        "max_train_steps": Foreign("run.steps", (KOHYA, DIFFUSERS, SIMPLE)),
        "max_train_epochs": Foreign("run.epochs", (KOHYA,)),
        "num_train_epochs": Foreign("run.epochs", (DIFFUSERS, SIMPLE)),
        "max_epochs": Foreign("run.epochs", (EVERY,)),
        "epochs": Foreign("run.epochs", (ONE,)),
        "seed": Foreign("run.seed", (KOHYA, DIFFUSERS, SIMPLE, EVERY)),
        "output_dir": Foreign("run.folder", (KOHYA, DIFFUSERS, SIMPLE)),
        "workspace_dir": Foreign("run.folder", (ONE,)),
        "logdir": Foreign("run.folder", (EVERY,)),
        "output_name": Foreign("run.name", (KOHYA,)),
        "project_name": Foreign("run.name", (EVERY,)),
        "mixed_precision": Foreign("run.precision", (KOHYA, DIFFUSERS, SIMPLE), "no is fp32"),
        "train_dtype": Foreign("run.precision", (ONE,)),
        "disable_amp": Foreign("run.precision", (EVERY,), "disable_amp is precision=fp32"),
        "full_bf16": Foreign("run.weight_dtype", (KOHYA,), "alone, with run.precision=bf16"),
        "gradient_checkpointing": Foreign("run.recompute.enabled", (KOHYA, DIFFUSERS, ONE, SIMPLE, EVERY)),
        "allow_tf32": Foreign("run.tf32", (DIFFUSERS,)),
        "save_every_n_epochs": Foreign("run.export.every", (KOHYA, EVERY), "write run.export.every='1 epoch'"),
        "save_every_n_steps": Foreign("run.export.every", (KOHYA,), "write run.export.every='500 steps'"),
        "checkpointing_steps": Foreign("run.save.every", (DIFFUSERS, SIMPLE)),
        "checkpoints_total_limit": Foreign("run.save.keep", (DIFFUSERS, SIMPLE)),
        "resume_from_checkpoint": Foreign(
            "run.resume", (DIFFUSERS, SIMPLE), "a run goes on from its newest checkpoint by itself"
        ),
        "save_precision": Foreign("run.export.dtype", (KOHYA,), "float is fp32"),
        "output_dtype": Foreign("run.export.dtype", (ONE,)),
        "save_model_as": Foreign(
            "run.export.single_file", (KOHYA,), "a folder is always written, single_file adds one .safetensors"
        ),
        "sample_every_n_steps": Foreign("run.preview.every", (KOHYA,), "write run.preview.every='500 steps'"),
        "sample_every_n_epochs": Foreign("run.preview.every", (KOHYA,), "write run.preview.every='1 epoch'"),
        "validation_steps": Foreign("run.preview.every", (SIMPLE,), "the loss of pictures held out is run.validation"),
        "sample_steps": Foreign("run.preview.every", (EVERY,)),
        "log_with": Foreign("run.wandb.mode", (KOHYA,), "TensorBoard is on by default"),
        "report_to": Foreign("run.wandb.mode", (DIFFUSERS, SIMPLE), "TensorBoard is on by default"),
        # previews
        "sample_prompts": Foreign("sample.file", (KOHYA, EVERY)),
        "validation_prompt": Foreign("sample.prompts", (DIFFUSERS, SIMPLE)),
        "validation_prompts": Foreign("sample.prompts", (DIFFUSERS,)),
        "sample_sampler": Foreign("sample.solver", (KOHYA,)),
        "validation_guidance": Foreign("sample.guidance", (SIMPLE,)),
        "validation_num_inference_steps": Foreign("sample.steps", (SIMPLE,)),
        "validation_negative_prompt": Foreign("sample.negative_prompt", (SIMPLE,)),
    }
)  # fmt: skip
"""By the foreign name, with underscores."""

_PRECISIONS = {"no": "fp32", "float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"}

_VALUES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "run.precision": _PRECISIONS,
        "run.weight_dtype": _PRECISIONS,
        "run.frozen_dtype": _PRECISIONS,
        "run.vae_dtype": _PRECISIONS,
        "run.export.dtype": _PRECISIONS,
        "run.export.single_file_dtype": _PRECISIONS,
        "data.cache.dtype": _PRECISIONS,
        "optim.optimizer.kind": {
            "adamw8bit": "adamw-8bit", "adam8bit": "adamw-8bit", "adamw-8-bit": "adamw-8bit", "adam": "adamw",
            "pagedadamw8bit": "adamw-8bit", "adam-w": "adamw", "ada-factor": "adafactor",
        },
        "optim.schedule.kind": {
            "cosine-with-restarts": "restarts", "cosine-restarts": "restarts",
            "constant-with-warmup": "constant with optim.schedule.warmup_steps", "step": "piecewise",
            "piecewise-constant": "piecewise", "none": "constant",
        },
        "objective.loss": {"l2": "mse", "mae": "l1", "smooth-l1": "huber"},
        "model.prediction": {"v-prediction": "v", "v-pred": "v", "eps": "epsilon", "noise": "epsilon"},
        "model.attention": {"sdpa": "auto", "sdp": "auto", "flash-attention": "flash", "flash-attn": "flash"},
    }
)  # fmt: skip
"""By setting, then by the foreign word in small letters with hyphens."""
