"""The options of Open-Sora-Plan's `train_t2v.py`: the 73 of its document on training arguments, with the documented
defaults, and further ones in the scripts of the MindSpore port."""

from __future__ import annotations

from mezzotint.compat.kit.dialect import ignored, mapped, refused, row

MODEL_NAME = "LatteT2V-XL/122"
VAE_NAME = "CausalVAEModel_4x8x8"
GROUPS = {
    "norm_and_bias": ["@norm-and-bias"],
    "unclip": ["@norm-and-bias", "~*label_emb*", "~*time_embed*", "~*emb_layers*"],
    "None": ["*bias", "~*layernorm*"],
    "none": ["*bias", "~*layernorm*"],
}
"""Patterns of parameter names; some occur only in other models of Open-Sora-Plan."""
SCHEDULES = {
    "constant": "constant", "cosine_decay": "cosine", "polynomial_decay": "polynomial", "multi_step_decay": "constant",
}  # fmt: skip
LEVELS = ("logging.DEBUG", "logging.INFO", "logging.WARNING", "logging.ERROR", "DEBUG", "INFO", "WARNING", "ERROR")
_TYPES = ("bf16", "fp16", "fp32")


DATA = (
    row("video_data", str, "data.path data.format",
        "the list file of clips: folder, annotation, and between them the folder of a text cache"),
    row("image_data", str, "data.clips.images_path data.clips.images_from",
        "the list file of images: joined to clips, or, with num_frames 1, the only data"),
    row("max_image_size", 512, "data.resolution data.buckets.shape data.resize",
        "the side of the square; resized as in the PyTorch project, `data.resize=bicubic-then-square` as in the "
        "port"),
    row("num_frames", 17, "data.clips.frames model.latte.video_length",
        "odd; the autoencoder preserves the number of frames if it is 4 k + 1; 1 trains images"),
    row("use_img_from_vid", False, "data.clips.images_from", "images are frames of the clip"),
    row("use_image_num", 0, "data.clips.images data.clips.images_order", "images joined to each clip", least=0),
    row("text_embed_cache", True, "data.cache.text data.clip_list.text_embeddings",
        "the embeddings in the second path of each line; without it, T5 encodes captions during training"),
    row("enable_flip", False, "data.flip", "half of the visits are mirrored, all frames together", on=0.5, off=0.0),
    mapped("model_max_length", 300, "model.latte.max_tokens", "tokens of a caption", least=2),
    row("filter_nonexistent", True, "data.clip_list.missing",
        "entries with missing files are left out; without it, they count as unusable", on="skip", off="count"),
    row("pretrained", str, "model.path model.config model.weights",
        "a folder or a file; without it all weights are random"),
    row("text_encoder_name", "DeepFloyd/t5-v1_1-xxl", "model.latte.text_encoder",
        "a folder, or a hub id in the local cache; with a text cache it is only read if it is given"),
    ignored("ae", VAE_NAME, "there is only one autoencoder", choices=(VAE_NAME,)),
    mapped("ae_path", "LanguageBind/Open-Sora-Plan-v1.1.0", "model.vae",
        "the autoencoder's folder, or the folder that contains it as `vae`, or a hub id in the local cache"),
    ignored("dataset", "t2v", "there is only one kind", choices=("t2v",)),
)  # fmt: skip

MODEL = (
    mapped("use_rope", False, "model.latte.rope", "rotary positions in addition to the tables"),
    row("compress_kv", False, "model.latte.compress_kv", "off disables compression, whatever the factor"),
    row("compress_kv_factor", 1, "model.latte.compress_kv", "with compress_kv", least=1),
    ignored("model", MODEL_NAME, "there is only one network", choices=(MODEL_NAME,),
        fixed={"model.family": "latte", "model.train": ["denoiser"]}),
    refused("multi_scale", False, "is announced in Open-Sora-Plan but not implemented; set "
        "data.clips.buckets=[[17, 512, 512], [17, 384, 640]] in a recipe, which trains several sizes"),
)  # fmt: skip

ACCELERATION = (
    mapped("enable_tiling", False, "model.latte.tiling.enabled", "the autoencoder processes large clips in tiles"),
    row("tile_overlap_factor", 0.25, "model.latte.tiling.overlap", "between 0 and 1"),
    mapped("use_recompute", False, "run.gradient_checkpointing.enabled",
        "activations of each pair of blocks are recomputed"),
    row("num_no_recompute", 0, "run.gradient_checkpointing.skip_last",
        "number of last pairs of blocks that keep their activations"),
)  # fmt: skip

PRECISION = (
    mapped("precision", "bf16", "run.precision", "compute dtype of LatteT2V", choices=_TYPES),
    row("amp_level", "O1", "run.half_precision", "O1: matrix products in the smaller dtype; O2: all but norms and SiLU",
        choices=("O1", "O2")),
    mapped("text_encoder_precision", "bf16", "run.frozen_dtype", "of T5, if it is loaded", choices=_TYPES),
    mapped("vae_precision", "fp16", "run.vae_dtype", "of the autoencoder", choices=_TYPES),
    row("vae_keep_gn_fp32", False, "model.latte.vae_norms", "the autoencoder's group norms in float32", on="fp32",
        off="same"),
    mapped("loss_scaler_type", "dynamic", "run.scaler.kind", "only for fp16", choices=("dynamic", "static")),
    row("loss_scale_factor", 2, "run.scaler.growth", "divides after an overflow, multiplies after a window without one",
        form="number"),
    row("scale_window", 2000, "run.scaler.growth_interval", "steps without overflow", least=1),
    row("init_loss_scale", 65536, "run.scaler.init", "the first scale", form="number", least=1),
)  # fmt: skip

LOADING = (
    row("dataset_sink_mode", False, "run.device_prefetch run.log_every",
        "batches are prepared on the device ahead of the step"),
    row("sink_size", -1, "run.log_every", "with dataset_sink_mode: the log interval"),
    mapped("dataloader_num_workers", 4, "data.workers", "processes that decode clips"),
    ignored("max_rowsize", 4, "clips are passed in shared memory of the required size"),
    row("batch_size", 32, "data.batch_size data.remainder",
        "per process in Open-Sora-Plan; multiplied by the number of processes once; the rest of an epoch is dropped",
        least=1, unit="processes", fixed={"data.remainder": "drop"}),
    row("dataloader_prefetch_size", int, "data.prefetch run.device_prefetch",
        "batches that each worker prefetches; with dataset_sink_mode also on the device, 2 by default", least=1),
)  # fmt: skip

UPDATE = (
    row("optim", "adamw", "optim.optimizer.kind",
        "adamw is torch's; AdamWeightDecay is the port's rule, without bias correction",
        choices=("adamw", "AdamWeightDecay"), values={"AdamWeightDecay": "adam-weight-decay"}),
    row("betas", (0.9, 0.999), "optim.optimizer.betas", "of mean and square"),
    mapped("optim_eps", 1e-8, "optim.optimizer.eps", "added to the root"),
    row("group_strategy", "norm_and_bias", "optim.optimizer.no_decay", "which parameters have no weight decay",
        choices=tuple(GROUPS), values=GROUPS),
    row("clip_grad", False, "optim.clip.norm", "clips gradients to max_grad_norm"),
    row("max_grad_norm", 1.0, "optim.clip.norm", "over all parameters", above=0,
        needs=("clip_grad", "without --clip_grad True nothing is clipped")),
    row("use_ema", True, "optim.ema.rule", "rate · (1 − exp(−u/2000)); samples are generated from it", on="saturating",
        off="none"),
    mapped("ema_decay", 0.9999, "optim.ema.decay", "has an effect; in Open-Sora-Plan it is a constant"),
    mapped("gradient_accumulation_steps", 1, "optim.accumulation", "batches of one step", least=1),
    mapped("weight_decay", 0.01, "optim.optimizer.weight_decay", "of parameters with weight decay"),
    row("lr_scheduler", "cosine_decay", "optim.schedule.kind optim.schedule.floor optim.schedule.power",
        "multi_step_decay has no milestones in Open-Sora-Plan, so the rate is constant", choices=tuple(SCHEDULES)),
    row("start_learning_rate", 1e-5, "optim.lr", "the peak"),
    row("end_learning_rate", 1e-6, "optim.schedule.floor", "the end of the decay"),
    row("lr_warmup_steps", 0, "optim.schedule.warmup_steps", "micro-batches in Open-Sora-Plan", least=0),
    row("lr_decay_steps", 0, "optim.schedule.decay_steps",
        "micro-batches in Open-Sora-Plan, after the warm-up; 0 is the rest of the run", least=0),
    row("scale_lr", False, "optim.lr", "both rates times batch, accumulation and processes"),
)  # fmt: skip

ENVIRONMENT = (
    row("device", "Ascend", "run.device", "Ascend and GPU mean the available accelerator",
        choices=("Ascend", "GPU", "cpu", "CPU"), values={"Ascend": "auto", "GPU": "auto", "CPU": "cpu"}),
    mapped("max_device_memory", str, "run.memory_limit", "30GB or 59GB in Open-Sora-Plan"),
    row("mode", 0, "run.compile", "0 compiles, 1 runs eagerly"),
    row("use_parallel", False, "run.runtime", "must match the launcher"),
    row("parallel_mode", "data", "run.runtime run.shard.parameters",
        "optim shards gradients, optimizer state and average", choices=("data", "optim", "semi")),
    row("seed", 3407, "run.seed sample.seed", "of all random numbers", least=0),
    ignored("mempool_block_size", "9GB", "torch's allocator has no such pool"),
    row("optimizer_weight_shard_size", 8, "run.shard.group", "with parallel_mode optim: the size of a group"),
)  # fmt: skip

LENGTH = (
    row("max_train_steps", int, "run.steps run.whole_epochs",
        "rounded down to whole epochs; micro-batches in Open-Sora-Plan",
        least=1, unit="steps", fixed={"run.whole_epochs": True}),
    row("epochs", 10, "run.epochs", "used without max_train_steps", least=1),
    ignored("step_mode", False, "checkpoints are counted in steps with checkpointing_steps, otherwise in epochs"),
)  # fmt: skip

SAVING = (
    row("resume_from_checkpoint", "False", "run.resume",
        "True resumes from the newest checkpoint, or starts if there is none; or the path of one"),
    row("ckpt_save_interval", 1, "run.save.every", "epochs between checkpoints", least=1),
    row("checkpointing_steps", int, "run.save.every", "micro-batches between checkpoints, instead of epochs", least=1,
        unit="steps"),
    mapped("ckpt_max_keep", 10, "run.save.keep", "checkpoints that are kept", least=1),
    ignored("log_level", "logging.INFO", "everything is printed, and written to run.log", choices=LEVELS),
    row("log_interval", 1, "run.log_every", "micro-batches in Open-Sora-Plan", least=1, unit="steps"),
    row("profile", False, "run.profile.steps run.profile.folder",
        "a trace of a few steps in ./profile_data; the run continues; in Open-Sora-Plan it ends", optional=True,
        fixed={"run.profile.steps": 3, "run.profile.folder": "profile_data"}),
)  # fmt: skip

OUTSIDE = (
    row("output_dir", "output", "run.folder run.name run.export.link", "the run folder; models are in its ckpt/"),
    row("output_path", str, "run.folder", "another name of output_dir"),
    ignored("enable_flash_attention", False, "torch selects the fastest kernel that supports the masks"),
    row("global_bf16", False, "run.half_precision", "everything in bf16, including norms"),
    ignored("drop_overflow_update", True, "a non-finite step never changes anything"),
    ignored("jit_level", str, "torch.compile has no such levels; --mode selects compilation",
        choices=("O0", "O1", "O2")),
    ignored("enable_dvm", False, "kernel fusion of Ascend devices"),
    ignored("enable_parallel_fusion", True, "the update is always one pass"),
    refused("sp_size", 1, "sequence parallelism is not supported yet; leave it out, and use "
        "run.runtime=fsdp and --use_recompute True for memory"),
    refused("vae_latent_folder", str,
        "is unfinished in Open-Sora-Plan; use `mezzotint cache` with data.cache.latents=true"),
)  # fmt: skip

ROWS = (
    *DATA, *MODEL, *ACCELERATION, *PRECISION, *LOADING, *UPDATE, *ENVIRONMENT, *LENGTH, *SAVING, *OUTSIDE,
)  # fmt: skip
