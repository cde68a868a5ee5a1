"""Names and values of settings in other trainers; see `settings/reading/foreign_names.py`."""

from __future__ import annotations

from collections.abc import Mapping

from mezzotint.settings.reading.foreign_names import Foreign

KOHYA, DIFFUSERS, ONE, SIMPLE, EVERY = "kohya", "diffusers", "OneTrainer", "SimpleTuner", "EveryDream2"
_ORIGINS = {"K": KOHYA, "D": DIFFUSERS, "O": ONE, "S": SIMPLE, "E": EVERY}
_TORCHS = "torch's own attention is the default, and saves as much memory"

_BY_SETTING = {
    "model.path": ("KDS pretrained_model_name_or_path", "O base_model_name", "E resume_ckpt",
        "K v2: SD 2.x is recognised by its files; nothing needs to be set"),
    "model.family": ("S model_family",),
    "model.vae": ("DS pretrained_vae_model_name_or_path",),
    "model.prediction": ("K v_parameterization: v_parameterization is prediction=v",
        "O force_v_prediction: force_v_prediction is prediction=v", "DS prediction_type: v_prediction is v"),
    "model.clip_skip": ("KE clip_skip: clip_skip=N there is N−1 here",),
    "model.train": ("DS train_text_encoder: write model.train=[denoiser, text_encoder]",
        "K network_train_unet_only: write model.train=denoiser",
        "K network_train_text_encoder_only: write model.train=text_encoder",
        "E disable_textenc_training: write model.train=denoiser"),
    "model.attention": (f"K xformers mem_eff_attn: {_TORCHS}",
        f"D enable_xformers_memory_efficient_attention: {_TORCHS}",
        "K sdpa: sdpa is torch's own attention, which is the default", "E attn_type: sdp is auto, which is the default",
        "OS attention_mechanism"),
    "model.adapter.kind": ("K network_module: networks.lora is kind=lora",
        "K network_args: algo is kind; conv_dim is targets=all with rank_pattern",
        "DS use_dora: use_dora is kind=dora", "S lora_type: standard is kind=lora, lycoris is loha or lokr",
        "O peft_type"),
    "model.adapter.rank": ("K network_dim: the default of network_dim is 4", "D rank",
        "OS lora_rank", "K conv_dim: conv_dim is targets=all, with rank_pattern where it differs"),
    "model.adapter.alpha": ("K network_alpha: the default is 1; in Mezzotint the rank",
        "KDOS lora_alpha: the default in Mezzotint is the rank",
        "K conv_alpha: convolutions of another alpha are in alpha_pattern"),
    "model.adapter.decompose_both": ("K decompose_both: in network_args", "O lokr_decompose_both"),
    "model.adapter.dropout": ("K network_dropout: applied after the first factor; in Mezzotint before it",
        "DOS lora_dropout"),
    "model.adapter.rank_dropout": ("K rank_dropout: in network_args",),
    "model.adapter.module_dropout": ("K module_dropout: in network_args; drawn once for a batch, here by sample",),
    "model.adapter.b_lr_ratio": ("K loraplus_lr_ratio: in network_args",),
    "model.adapter.path": ("K network_weights", "K dim_from_weights: ranks are always taken from the file",
        "S init_lora"),
    "model.adapter.max_norm": ("K scale_weight_norms",),
    "model.adapter.init": ("S lora_init_type", "D init_lora_weights"),
    "model.adapter.targets": ("DS lora_layers", "D lora_target_modules"),
    "": ("K v_pred_like_loss: the loss has no second term",),
    "data.path": ("KD train_data_dir", "DS instance_data_dir", "E data_root",
        "D dataset_name: with data.format=metadata"),
    "data.repeats": ("K num_repeats dataset_repeats",),
    "data.prior.path": ("K reg_data_dir", "D class_data_dir"),
    "data.prior.weight": ("KD prior_loss_weight",),
    "data.prior.balance": ("D with_prior_preservation: data.prior.balance=pairs makes batches as diffusers does",),
    "data.prior.class_prompt": ("D class_prompt",),
    "data.mask.source": ("K masked_loss conditioning_data_dir: data.mask.source=files with data.mask.path=FOLDER",
        "K alpha_mask: data.mask.source=alpha", "O masked_training: data.mask.source=files"),
    "data.mask.background": ("O unmasked_weight",),
    "data.mask.mean": ("O normalize_masked_area_loss: data.mask.mean=mask, the default in Mezzotint",),
    "data.prior.num_class_images": ("D num_class_images",),
    "data.captions.trigger": ("D instance_prompt: with data.captions.template='{trigger}'", "K class_tokens"),
    "data.batch_size": ("KDS train_batch_size: per device; in Mezzotint the total of all devices",
        "OE batch_size"),
    "data.resolution": ("KDOSE resolution",),
    "data.buckets.shape": (
        "K enable_bucket: data.buckets.shape=range; buckets are on by default, shape=square uses one size for all",
        "K bucket_no_upscale: data.buckets.shape=own",
        "O aspect_ratio_bucketing: buckets are on by default, shape=square uses one size for all"),
    "data.buckets.step": ("K bucket_reso_steps", "S aspect_bucket_alignment"),
    "data.buckets.min_side": ("K min_bucket_reso",),
    "data.buckets.max_side": ("K max_bucket_reso",),
    "data.crop": ("K random_crop: random_crop is crop=random", "D center_crop: center_crop is crop=center"),
    "data.flip": ("K flip_aug: flip_aug is flip=0.5", "D random_flip: random_flip is flip=0.5", "E flip_p"),
    "data.captions.extension": ("K caption_extension: both .txt and .caption are read unless it is set",),
    "data.captions.suffix": ("K caption_suffix",),
    "data.captions.shuffle_tags": ("K shuffle_caption",),
    "data.captions.keep_tags": ("K keep_tokens: keep_tokens=N is keep_tags=N−1",),
    "data.captions.keep_separator": ("K keep_tokens_separator",),
    "data.captions.second_separator": ("K secondary_separator",),
    "data.captions.dropout_every": ("K caption_dropout_every_n_epochs",),
    "data.captions.dropout": ("K caption_dropout_rate", "S caption_dropout_probability", "D proportion_empty_prompts",
        "E cond_dropout"),
    "data.cache.latents": ("K cache_latents", "K cache_latents_to_disk: a cache is always on the disk",
        "O latent_caching"),
    "data.cache.text": ("K cache_text_encoder_outputs",),
    "data.workers": ("K max_data_loader_n_workers", "D dataloader_num_workers", "O dataloader_threads"),
    "data.max_samples": ("D max_train_samples",),
    "objective.loss": ("KE loss_type: of sd-scripts, l2 is mse and huber is pseudo-huber",),
    "objective.huber_delta": ("KS huber_c",),
    "objective.huber_schedule": ("KS huber_schedule: the default there is snr",),
    "objective.huber_scale": ("K huber_scale",),
    "objective.weighting": ("K debiased_estimation_loss: debiased_estimation_loss is weighting=debiased",),
    "objective.min_snr_gamma": ("KE min_snr_gamma", "DS snr_gamma"),
    "objective.noise_offset": ("KD noise_offset", "O offset_noise_weight", "E zero_frequency_noise_ratio"),
    "objective.noise_offset_random_strength": ("K noise_offset_random_strength",),
    "objective.noise_offset_adaptive_scale": ("K adaptive_noise_scale",),
    "objective.input_perturbation_random_strength": ("K ip_noise_gamma_random_strength",),
    "objective.input_perturbation": ("K ip_noise_gamma", "O perturbation_noise_weight", "DS input_perturbation"),
    "objective.pyramid_discount": ("K multires_noise_iterations: there are as many levels as the image size allows",
        "K multires_noise_discount"),
    "objective.zero_terminal_snr": ("K zero_terminal_snr", "S rescale_betas_zero_snr",
        "O rescale_noise_scheduler_to_zero_terminal_snr", "E enable_zero_terminal_snr"),
    "objective.timesteps": ("K min_timestep max_timestep: write objective.timesteps=[min, max]",),
    "optim.lr": ("KDOS learning_rate", "E lr", "K unet_lr"),
    "optim.part_lr": ("K text_encoder_lr: write optim.part_lr.text_encoder=1e-6",
        "K block_lr: write a rate by name pattern, such as {'denoiser/mid_block.*': 1e-6}"),
    "optim.optimizer.kind": ("K optimizer_type", "KD use_8bit_adam: use_8bit_adam is kind=adamw-8bit"),
    "optim.optimizer": ("K optimizer_args: each is a setting of its own",),
    "optim.optimizer.weight_decay": ("D adam_weight_decay",),
    "optim.optimizer.eps": ("D adam_epsilon",),
    "optim.optimizer.betas": ("D adam_beta1 adam_beta2: write optim.optimizer.betas=[beta1, beta2]",),
    "optim.schedule.kind": ("KDSE lr_scheduler: cosine_with_restarts is restarts", "O learning_rate_scheduler"),
    "optim.schedule.warmup_steps": ("KDSE lr_warmup_steps", "O learning_rate_warmup_steps"),
    "optim.schedule.decay_steps": ("E lr_decay_steps",),
    "optim.schedule.cycles": ("K lr_scheduler_num_cycles", "DS lr_num_cycles"),
    "optim.schedule.power": ("K lr_scheduler_power",),
    "optim.lr_batch_power": ("DE scale_lr: 1 as diffusers scales, 0.55 as EveryDream2",),
    "optim.accumulation": ("KDOS gradient_accumulation_steps", "E grad_accum"),
    "optim.clip.norm": ("KDS max_grad_norm", "OE clip_grad_norm"),
    "optim.ema.rule": ("DS use_ema: use_ema is rule=ramp",),
    "optim.ema.decay": ("E ema_decay_rate",),
    "optim.ema.interval": ("SE ema_update_interval",),
    "optim.ema.device": ("D offload_ema: offload_ema is device=cpu",),
    "run.steps": ("KDS max_train_steps",),
    "run.epochs": ("K max_train_epochs", "DS num_train_epochs", "E max_epochs", "O epochs"),
    "run.seed": ("KDSE seed",),
    "run.folder": ("KDS output_dir", "O workspace_dir", "E logdir"),
    "run.name": ("K output_name", "E project_name"),
    "run.precision": ("KDS mixed_precision: no is fp32", "O train_dtype",
        "E disable_amp: disable_amp is precision=fp32"),
    "run.weight_dtype": ("K full_bf16: pure, with run.precision=bf16",),
    "run.gradient_checkpointing.enabled": ("KDOSE gradient_checkpointing",),
    "run.tf32": ("D allow_tf32",),
    "run.export.every": ("KE save_every_n_epochs: write run.export.every='1 epoch'",
        "K save_every_n_steps: write run.export.every='500 steps'"),
    "run.save.every": ("DS checkpointing_steps",),
    "run.save.keep": ("DS checkpoints_total_limit",),
    "run.resume": ("DS resume_from_checkpoint: a run resumes from its newest checkpoint by itself",),
    "run.export.dtype": ("K save_precision: float is fp32", "O output_dtype"),
    "run.export.single_file": ("K save_model_as: a folder is always written, single_file adds one .safetensors",),
    "run.preview.every": ("K sample_every_n_steps: write run.preview.every='500 steps'",
        "K sample_every_n_epochs: write run.preview.every='1 epoch'",
        "S validation_steps: the loss of held-out images is run.validation", "E sample_steps"),
    "run.wandb.mode": ("K log_with: TensorBoard is on by default", "DS report_to: TensorBoard is on by default"),
    "sample.prompt_file": ("KE sample_prompts",),
    "sample.prompts": ("DS validation_prompt", "D validation_prompts"),
    "sample.solver": ("K sample_sampler",),
    "sample.guidance": ("S validation_guidance",),
    "sample.steps": ("S validation_num_inference_steps",),
    "sample.negative_prompt": ("S validation_negative_prompt",),
}  # fmt: skip
"""By Mezzotint's setting, "" for none: first letters of the trainers, their names of it, and after a colon a note."""


def _foreign(path: str, entry: str) -> dict[str, Foreign]:
    head, _, note = entry.partition(": ")
    letters, *names = head.split()
    return dict.fromkeys(names, Foreign(path or None, tuple(_ORIGINS[letter] for letter in letters), note))


NAMES: Mapping[str, Foreign] = {
    name: foreign
    for path, entries in _BY_SETTING.items()
    for one in entries
    for name, foreign in _foreign(path, one).items()
}
"""By the foreign name, with underscores."""

_PRECISIONS = {"no": "fp32", "float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16"}

VALUES: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(
        ("run.precision", "run.weight_dtype", "run.vae_dtype", "run.export.dtype",
         "run.export.single_file_dtype", "data.cache.dtype"),
        _PRECISIONS,
    ),
    "run.frozen_dtype": _PRECISIONS | {
        "8bit": "int8", "8-bit": "int8", "4bit": "nf4", "4-bit": "nf4", "int4": "nf4", "fp4": "nf4",
    },
    "optim.optimizer.kind": {
        "adamw8bit": "adamw-8bit", "adam8bit": "adamw-8bit", "adamw-8-bit": "adamw-8bit", "adam": "adamw",
        "pagedadamw8bit": "adamw-8bit", "adam-w": "adamw", "ada-factor": "adafactor",
        "adamwschedulefree": "schedule-free-adamw", "schedulefree": "schedule-free-adamw",
    },
    "optim.schedule.kind": {
        "cosine-with-restarts": "restarts", "cosine-restarts": "restarts", "step": "piecewise", "none": "constant",
        "constant-with-warmup": "constant with optim.schedule.warmup_steps", "piecewise-constant": "piecewise",
    },
    "objective.loss": {"l2": "mse", "mae": "l1"},
    "model.prediction": {"v-prediction": "v", "v-pred": "v", "eps": "epsilon", "noise": "epsilon"},
    "model.attention": {"sdpa": "auto", "sdp": "auto", "flash-attention": "flash", "flash-attn": "flash"},
}  # fmt: skip
"""By setting, then by the foreign value in lower case with hyphens."""

UNREAD = {
    spelled: f"commands of {name} are not supported yet; the nearest is --as diffusers-sd. `mezzotint explain NAME` "
    f"prints Mezzotint's name of a setting of {name}"
    for name, spellings in {
        ONE: ("onetrainer",),
        SIMPLE: ("simpletuner",),
    }.items()
    for spelled in spellings
} | dict.fromkeys(("kohyass", "sdscripts"), "commands of sd-scripts are read by --as kohya")
"""Messages about trainers whose commands are not supported, by their names in lower-case letters."""

FILES = {
    mark: f"is a file of {name}, which Mezzotint does not read yet; `mezzotint ls dialects` lists the trainers it reads"
    for mark, name in {
        ("base_model_name", "training_method"): ONE,
        ("data_backend_config", "model_type"): SIMPLE,
        ("data_backend_config", "model_family"): SIMPLE,
        ("micro_batch_size_per_gpu", "dataset"): "diffusion-pipe",
    }.items()
}
"""Messages about files of trainers that are not read, by keys that only these files have."""
