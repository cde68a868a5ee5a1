"""The options of Open-Sora-Plan's `train_t2v.py`: the 73 of its document on training arguments, with the defaults that
the document gives, and those that the port's scripts use besides."""

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
"""By what is in names; those that LatteT2V has not, other models of theirs have."""
SCHEDULES = {
    "constant": "constant", "cosine_decay": "cosine", "polynomial_decay": "polynomial", "multi_step_decay": "constant",
}  # fmt: skip
LEVELS = ("logging.DEBUG", "logging.INFO", "logging.WARNING", "logging.ERROR", "DEBUG", "INFO", "WARNING", "ERROR")
_TYPES = ("bf16", "fp16", "fp32")


DATA = (
    row("video_data", str, "data.path data.format",
        "the list file of clips: folder, annotation, and with a text cache its folder between them"),
    row("image_data", str, "data.clips.images_path data.clips.images_from",
        "the list file of pictures: trained beside clips, or, with num_frames 1, alone"),
    row("max_image_size", 512, "data.resolution data.buckets.shape data.resize",
        "the side of the square; resized as the PyTorch project does, `data.resize=bicubic-then-square` as the port "
        "does"),
    row("num_frames", 17, "data.clips.frames model.latte.video_length",
        "odd; 4 k + 1 comes back whole from the autoencoder; 1 trains pictures"),
    row("use_img_from_vid", False, "data.clips.images_from", "pictures are frames of the clip"),
    row("use_image_num", 0, "data.clips.images data.clips.images_order", "pictures beside each clip", least=0),
    row("text_embed_cache", True, "data.cache.text data.clip_list.text_embeddings",
        "the embeddings that lie in the second path of each line; without, T5 reads captions in the loop"),
    row("enable_flip", False, "data.flip", "half of the visits are mirrored, all frames alike", on=0.5, off=0.0),
    mapped("model_max_length", 300, "model.latte.max_tokens", "tokens of a caption", least=2),
    row("filter_nonexistent", True, "data.clip_list.missing",
        "entries whose files are not there are left out; without, they count as unusable", on="skip", off="count"),
    row("pretrained", str, "model.path model.config model.weights",
        "a folder or a file; without it every weight is random"),
    row("text_encoder_name", "DeepFloyd/t5-v1_1-xxl", "model.latte.text_encoder",
        "a folder, or a hub id that lies in the local cache; not read with a text cache, unless it is named"),
    ignored("ae", VAE_NAME, "the only autoencoder there is", choices=(VAE_NAME,)),
    mapped("ae_path", "LanguageBind/Open-Sora-Plan-v1.1.0", "model.vae",
        "the autoencoder's folder, or the one that has it as `vae`; or a hub id that lies in the local cache"),
    ignored("dataset", "t2v", "the only kind there is", choices=("t2v",)),
)  # fmt: skip

MODEL = (
    mapped("use_rope", False, "model.latte.rope", "rotary positions besides the tables"),
    row("compress_kv", False, "model.latte.compress_kv", "off switches compression off whatever the factor"),
    row("compress_kv_factor", 1, "model.latte.compress_kv", "with compress_kv", least=1),
    ignored("model", MODEL_NAME, "the only network there is", choices=(MODEL_NAME,),
        fixed={"model.family": "latte", "model.train": ["denoiser"]}),
    refused("multi_scale", False, "is announced there and not built; write data.clips.buckets=[[17, 512, 512], [17, "
        "384, 640]] in a recipe of your own, which trains several sizes"),
)  # fmt: skip

ACCELERATION = (
    mapped("enable_tiling", False, "model.latte.tiling.enabled", "large clips go through the autoencoder in pieces"),
    row("tile_overlap_factor", 0.25, "model.latte.tiling.overlap", "between 0 and 1"),
    mapped("use_recompute", False, "run.gradient_checkpointing.enabled",
        "activations of each pair of blocks are computed again"),
    row("num_no_recompute", 0, "run.gradient_checkpointing.skip_last",
        "pairs of blocks, from the last, that keep their activations"),
)  # fmt: skip

PRECISION = (
    mapped("precision", "bf16", "run.precision", "of LatteT2V's arithmetic", choices=_TYPES),
    row("amp_level", "O1", "run.half_precision", "O1: products in the smaller type; O2: all but norms and SiLU",
        choices=("O1", "O2")),
    mapped("text_encoder_precision", "bf16", "run.frozen_dtype", "of T5, where it runs", choices=_TYPES),
    mapped("vae_precision", "fp16", "run.vae_dtype", "of the autoencoder", choices=_TYPES),
    row("vae_keep_gn_fp32", False, "model.latte.vae_norms", "the autoencoder's group norms in float32", on="fp32",
        off="same"),
    mapped("loss_scaler_type", "dynamic", "run.scaler.kind", "acts in fp16 alone", choices=("dynamic", "static")),
    row("loss_scale_factor", 2, "run.scaler.growth", "an overflow divides by it, a clean window multiplies",
        form="number"),
    row("scale_window", 2000, "run.scaler.growth_interval", "steps without overflow", least=1),
    row("init_loss_scale", 65536, "run.scaler.init", "the first scale", form="number", least=1),
)  # fmt: skip

LOADING = (
    row("dataset_sink_mode", False, "run.device_prefetch run.log_every",
        "batches are made ready on the device ahead of the step"),
    row("sink_size", -1, "run.log_every", "with dataset_sink_mode: how often is logged"),
    mapped("dataloader_num_workers", 4, "data.workers", "processes that decode clips"),
    ignored("max_rowsize", 4, "clips travel through shared memory of the size they need"),
    row("batch_size", 32, "data.batch_size data.remainder",
        "per process there; multiplied by the number of processes once; what is left of an epoch is dropped", least=1,
        unit="processes", fixed={"data.remainder": "drop"}),
    row("dataloader_prefetch_size", int, "data.prefetch run.device_prefetch",
        "batches that each worker keeps ready; with dataset_sink_mode also on the device, 2 by default", least=1),
)  # fmt: skip

UPDATE = (
    row("optim", "adamw", "optim.optimizer.kind",
        "adamw is torch's; AdamWeightDecay the port's rule, without bias correction",
        choices=("adamw", "AdamWeightDecay"), values={"AdamWeightDecay": "adam-weight-decay"}),
    row("betas", (0.9, 0.999), "optim.optimizer.betas", "of mean and square"),
    mapped("optim_eps", 1e-8, "optim.optimizer.eps", "added to the root"),
    row("group_strategy", "norm_and_bias", "optim.optimizer.no_decay", "which parameters do not decay",
        choices=tuple(GROUPS), values=GROUPS),
    row("clip_grad", False, "optim.clip.norm", "shortens gradients that are longer than max_grad_norm"),
    row("max_grad_norm", 1.0, "optim.clip.norm", "over all parameters", above=0,
        needs=("clip_grad", "without --clip_grad True nothing is shortened")),
    row("use_ema", True, "optim.ema.rule", "rate · (1 − exp(−u/2000)); samples are drawn from it", on="saturating",
        off="none"),
    mapped("ema_decay", 0.9999, "optim.ema.decay", "acts here; there it is a constant"),
    mapped("gradient_accumulation_steps", 1, "optim.accumulation", "batches of one step", least=1),
    mapped("weight_decay", 0.01, "optim.optimizer.weight_decay", "of those that decay"),
    row("lr_scheduler", "cosine_decay", "optim.schedule.kind optim.schedule.floor optim.schedule.power",
        "multi_step_decay has no milestones there, so that the rate is constant", choices=tuple(SCHEDULES)),
    row("start_learning_rate", 1e-5, "optim.lr", "the peak"),
    row("end_learning_rate", 1e-6, "optim.schedule.floor", "where the decay ends"),
    row("lr_warmup_steps", 0, "optim.schedule.warmup_steps", "micro-batches there", least=0),
    row("lr_decay_steps", 0, "optim.schedule.decay_steps",
        "micro-batches there, after the warm-up; 0 is all that is left of the run", least=0),
    row("scale_lr", False, "optim.lr", "both rates times batch, accumulation and processes"),
)  # fmt: skip

ENVIRONMENT = (
    row("device", "Ascend", "run.device", "Ascend and GPU are the accelerator that is found",
        choices=("Ascend", "GPU", "cpu", "CPU"), values={"Ascend": "auto", "GPU": "auto", "CPU": "cpu"}),
    mapped("max_device_memory", str, "run.memory_limit", "30GB or 59GB there"),
    row("mode", 0, "run.compile", "0 compiles, 1 runs eagerly"),
    row("use_parallel", False, "run.runtime", "what the launch says has to agree"),
    row("parallel_mode", "data", "run.runtime run.shard.parameters",
        "optim shares gradients, optimizer state and average", choices=("data", "optim", "semi")),
    row("seed", 3407, "run.seed sample.seed", "of every draw", least=0),
    ignored("mempool_block_size", "9GB", "torch's allocator has no such pool"),
    row("optimizer_weight_shard_size", 8, "run.shard.group", "with parallel_mode optim: how many processes share"),
)  # fmt: skip

LENGTH = (
    row("max_train_steps", int, "run.steps run.whole_epochs", "the whole epochs within it; micro-batches there",
        least=1, unit="steps", fixed={"run.whole_epochs": True}),
    row("epochs", 10, "run.epochs", "counts when max_train_steps is absent", least=1),
    ignored("step_mode", False, "checkpoints go by steps when checkpointing_steps says how many, and else by epochs"),
)  # fmt: skip

SAVING = (
    row("resume_from_checkpoint", "False", "run.resume",
        "True goes on from the newest checkpoint, or starts when there is none; or the path of one"),
    row("ckpt_save_interval", 1, "run.save.every", "epochs between checkpoints", least=1),
    row("checkpointing_steps", int, "run.save.every", "micro-batches between checkpoints, instead of epochs", least=1,
        unit="steps"),
    mapped("ckpt_max_keep", 10, "run.save.keep", "checkpoints that stay", least=1),
    ignored("log_level", "logging.INFO", "everything is printed, and kept in run.log", choices=LEVELS),
    row("log_interval", 1, "run.log_every", "micro-batches there", least=1, unit="steps"),
    row("profile", False, "run.profile.steps run.profile.folder",
        "a trace of a few steps in ./profile_data, and the run goes on; there, it ends", optional=True,
        fixed={"run.profile.steps": 3, "run.profile.folder": "profile_data"}),
)  # fmt: skip

OUTSIDE = (
    row("output_dir", "output", "run.folder run.name run.export.link", "the run folder; models lie in its ckpt/"),
    row("output_path", str, "run.folder", "the same by another name"),
    ignored("enable_flash_attention", False, "torch takes the fastest kernel that can do the masks"),
    row("global_bf16", False, "run.half_precision", "everything in bf16, norms as well"),
    ignored("drop_overflow_update", True, "a step that is not finite never moves anything"),
    ignored("jit_level", str, "torch.compile has no such levels; --mode says whether it compiles",
        choices=("O0", "O1", "O2")),
    ignored("enable_dvm", False, "fusion of kernels of that device"),
    ignored("enable_parallel_fusion", True, "the update is one pass in any case"),
    refused("sp_size", 1, "sharing one clip among several devices is not supported yet; leave it out, and use "
        "run.runtime=fsdp and --use_recompute True for memory"),
    refused("vae_latent_folder", str,
        "is unfinished there; `mezzotint cache` with data.cache.latents=true keeps latents"),
)  # fmt: skip

ROWS = (
    *DATA, *MODEL, *ACCELERATION, *PRECISION, *LOADING, *UPDATE, *ENVIRONMENT, *LENGTH, *SAVING, *OUTSIDE,
)  # fmt: skip
