"""The options of Open-Sora-Plan's `train_t2v.py`: the 73 of its document on training arguments, with the defaults that
the document gives, and those that the port's scripts use besides."""

from __future__ import annotations

from types import MappingProxyType

from mezzotint.dialects.base import Row, switch

MODEL_NAME = "LatteT2V-XL/122"
VAE_NAME = "CausalVAEModel_4x8x8"
GROUPS = MappingProxyType(
    {
        "norm_and_bias": ["@norm-and-bias"],
        "unclip": ["@norm-and-bias", "~*label_emb*", "~*time_embed*", "~*emb_layers*"],
        "None": ["*bias", "~*layernorm*"],
        "none": ["*bias", "~*layernorm*"],
    }
)
"""By what is in names; those that LatteT2V has not, other models of theirs have."""
SCHEDULES = MappingProxyType(
    {"constant": "constant", "cosine_decay": "cosine", "polynomial_decay": "polynomial", "multi_step_decay": "constant"}
)
LEVELS = ("logging.DEBUG", "logging.INFO", "logging.WARNING", "logging.ERROR", "DEBUG", "INFO", "WARNING", "ERROR")
_TYPES = ("bf16", "fp16", "fp32")


DATA = (
    Row("video_data", "text", None, "computed", ("data.path", "data.format"),
        about="the list file of clips: folder, annotation, and with a text cache its folder between them"),
    Row("image_data", "text", None, "computed", ("data.clips.stills_path", "data.clips.stills_from"),
        about="the list file of pictures: trained beside clips, or, with num_frames 1, alone"),
    Row("max_image_size", "whole", 512, "computed", ("data.resolution", "data.buckets.shape", "data.resize"),
        about="the side of the square; resized as the PyTorch project does, `data.resize=open-sora-plan-port` as the "
        "port does"),
    Row("num_frames", "whole", 17, "computed", ("data.clips.frames", "model.latte.video_length"),
        about="odd; 4 k + 1 comes back whole from the autoencoder; 1 trains pictures"),
    switch("use_img_from_vid", "data.clips.stills_from", about="pictures are frames of the clip"),
    Row("use_image_num", "whole", 0, "computed", ("data.clips.stills", "data.clips.stills_order"), least=0,
        about="pictures beside each clip"),
    switch("text_embed_cache", "data.cache.text", "data.clips.texts", default=True,
            about="the embeddings that lie in the second path of each line; without, T5 reads captions in the loop"),
    switch("enable_flip", "data.flip", on=0.5, off=0.0, about="half of the visits are mirrored, all frames alike"),
    Row("model_max_length", "whole", 300, "mapped", ("model.max_tokens",), least=2, about="tokens of a caption"),
    switch("filter_nonexistent", "data.clips.missing", default=True, on="skip", off="count",
            about="entries whose files are not there are left out; without, they count as unusable"),
    Row("pretrained", "text", None, "computed", ("model.path", "model.config", "model.weights"),
        about="a folder or a file; without it every weight is random"),
    Row("text_encoder_name", "text", "DeepFloyd/t5-v1_1-xxl", "computed", ("model.text_encoder",),
        about="a folder, or a hub id that lies in the local cache; not read with a text cache, unless it is named"),
    Row("ae", "text", VAE_NAME, "without effect", choices=(VAE_NAME,), about="the only autoencoder there is"),
    Row("ae_path", "text", "LanguageBind/Open-Sora-Plan-v1.1.0", "mapped", ("model.vae",),
        about="the autoencoder's folder, or the one that has it as `vae`; or a hub id that lies in the local cache"),
    Row("dataset", "text", "t2v", "without effect", choices=("t2v",), about="the only kind there is"),
)  # fmt: skip

MODEL = (
    switch("use_rope", "model.latte.rope", outcome="mapped", about="rotary positions besides the tables"),
    switch("compress_kv", "model.latte.compress_kv", about="off switches compression off whatever the factor"),
    Row("compress_kv_factor", "whole", 1, "computed", ("model.latte.compress_kv",), least=1, about="with compress_kv"),
    Row("model", "text", MODEL_NAME, "without effect", choices=(MODEL_NAME,), about="the only network there is",
        fixed={"model.family": "latte", "model.train": ["denoiser"]}),
    switch("multi_scale", outcome="refused",
            about="is announced there and not built; write data.clips.buckets=[[17, 512, 512], [17, 384, 640]] in a "
            "recipe of your own, which trains several sizes"),
)  # fmt: skip

ACCELERATION = (
    switch("enable_tiling", "model.latte.tiling.enabled", outcome="mapped",
            about="large clips go through the autoencoder in pieces"),
    Row("tile_overlap_factor", "number", 0.25, "computed", ("model.latte.tiling.overlap",), about="between 0 and 1"),
    switch("use_recompute", "run.recompute.enabled", outcome="mapped",
            about="activations of each pair of blocks are computed again"),
    Row("num_no_recompute", "whole", 0, "computed", ("run.recompute.exempt_last",),
        about="pairs of blocks, from the last, that keep their activations"),
)  # fmt: skip

PRECISION = (
    Row("precision", "text", "bf16", "mapped", ("run.precision",), choices=_TYPES, about="of LatteT2V's arithmetic"),
    Row("amp_level", "text", "O1", "computed", ("run.half",), choices=("O1", "O2"),
        about="O1: products in the smaller type; O2: all but norms and SiLU"),
    Row("text_encoder_precision", "text", "bf16", "mapped", ("run.frozen_dtype",), choices=_TYPES,
        about="of T5, where it runs"),
    Row("vae_precision", "text", "fp16", "mapped", ("run.vae_dtype",), choices=_TYPES, about="of the autoencoder"),
    switch("vae_keep_gn_fp32", "model.latte.vae_norms", on="fp32", off="same",
           about="the autoencoder's group norms in float32"),
    Row("loss_scaler_type", "text", "dynamic", "mapped", ("run.scaler.kind",), choices=("dynamic", "static"),
        about="acts in fp16 alone"),
    Row("loss_scale_factor", "number", 2, "computed", ("run.scaler.growth",),
        about="an overflow divides by it, a clean window multiplies"),
    Row("scale_window", "whole", 2000, "computed", ("run.scaler.growth_interval",), least=1,
        about="steps without overflow"),
    Row("init_loss_scale", "number", 65536, "computed", ("run.scaler.init",), least=1, about="the first scale"),
)  # fmt: skip

LOADING = (
    switch("dataset_sink_mode", "run.device_prefetch", "run.log_every",
            about="batches are made ready on the device ahead of the step"),
    Row("sink_size", "whole", -1, "computed", ("run.log_every",), about="with dataset_sink_mode: how often is logged"),
    Row("dataloader_num_workers", "whole", 4, "mapped", ("data.workers",), about="processes that decode clips"),
    Row("max_rowsize", "whole", 4, "without effect", about="clips travel through shared memory of the size they need"),
    Row("batch_size", "whole", 32, "computed", ("data.batch_size", "data.remainder"), least=1, unit="processes",
        fixed={"data.remainder": "drop"},
        about="per process there; multiplied by the number of processes once; what is left of an epoch is dropped"),
    Row("dataloader_prefetch_size", "whole", None, "computed", ("data.prefetch", "run.device_prefetch"), least=1,
        about="batches that each worker keeps ready; with dataset_sink_mode also on the device, 2 by default"),
)  # fmt: skip

UPDATE = (
    Row("optim", "text", "adamw", "computed", ("optim.optimizer.kind",), choices=("adamw", "AdamWeightDecay"),
        values={"AdamWeightDecay": "adam-weight-decay"},
        about="adamw is torch's; AdamWeightDecay the port's rule, without bias correction"),
    Row("betas", "numbers", (0.9, 0.999), "computed", ("optim.optimizer.betas",), about="of mean and square"),
    Row("optim_eps", "number", 1e-8, "mapped", ("optim.optimizer.eps",), about="added to the root"),
    Row("group_strategy", "text", "norm_and_bias", "computed", ("optim.optimizer.no_decay",),
        choices=tuple(GROUPS), values=GROUPS, about="which parameters do not decay"),
    switch("clip_grad", "optim.clip.norm", about="shortens gradients that are longer than max_grad_norm"),
    Row("max_grad_norm", "number", 1.0, "computed", ("optim.clip.norm",), above=0, about="over all parameters",
        needs=("clip_grad", "without --clip_grad True nothing is shortened")),
    switch("use_ema", "optim.ema.rule", default=True, on="saturating", off="none",
           about="rate · (1 − exp(−u/2000)); samples are drawn from it"),
    Row("ema_decay", "number", 0.9999, "mapped", ("optim.ema.decay",), about="acts here; there it is a constant"),
    Row("gradient_accumulation_steps", "whole", 1, "mapped", ("optim.accumulation",), least=1,
        about="batches of one step"),
    Row("weight_decay", "number", 0.01, "mapped", ("optim.optimizer.weight_decay",), about="of those that decay"),
    Row("lr_scheduler", "text", "cosine_decay", "computed",
        ("optim.schedule.kind", "optim.schedule.floor", "optim.schedule.power"), choices=tuple(SCHEDULES),
        about="multi_step_decay has no milestones there, so that the rate is constant"),
    Row("start_learning_rate", "number", 1e-5, "computed", ("optim.lr",), about="the peak"),
    Row("end_learning_rate", "number", 1e-6, "computed", ("optim.schedule.floor",), about="where the decay ends"),
    Row("lr_warmup_steps", "whole", 0, "computed", ("optim.schedule.warmup_steps",), least=0,
        about="micro-batches there"),
    Row("lr_decay_steps", "whole", 0, "computed", ("optim.schedule.decay_steps",), least=0,
        about="micro-batches there, after the warm-up; 0 is all that is left of the run"),
    switch("scale_lr", "optim.lr", about="both rates times batch, accumulation and processes"),
)  # fmt: skip

ENVIRONMENT = (
    Row("device", "text", "Ascend", "computed", ("run.device",), choices=("Ascend", "GPU", "cpu", "CPU"),
        values={"Ascend": "auto", "GPU": "auto", "CPU": "cpu"},
        about="Ascend and GPU are the accelerator that is found"),
    Row("max_device_memory", "text", None, "mapped", ("run.device_memory",), about="30GB or 59GB there"),
    Row("mode", "whole", 0, "computed", ("run.compile",), about="0 compiles, 1 runs eagerly"),
    switch("use_parallel", "run.runtime", about="what the launch says has to agree"),
    Row("parallel_mode", "text", "data", "computed", ("run.runtime", "run.shard.parameters"),
        choices=("data", "optim", "semi"), about="optim shares gradients, optimizer state and average"),
    Row("seed", "whole", 3407, "computed", ("run.seed", "sample.seed"), least=0, about="of every draw"),
    Row("mempool_block_size", "text", "9GB", "without effect", about="torch's allocator has no such pool"),
    Row("optimizer_weight_shard_size", "whole", 8, "computed", ("run.shard.group",),
        about="with parallel_mode optim: how many processes share"),
)  # fmt: skip

LENGTH = (
    Row("max_train_steps", "whole", None, "computed", ("run.steps", "run.whole_epochs"), least=1, unit="steps",
        fixed={"run.whole_epochs": True},
        about="the whole epochs within it; micro-batches there"),
    Row("epochs", "whole", 10, "computed", ("run.epochs",), least=1, about="counts when max_train_steps is absent"),
    switch("step_mode", outcome="without effect",
            about="checkpoints go by steps when checkpointing_steps says how many, and else by epochs"),
)  # fmt: skip

SAVING = (
    Row("resume_from_checkpoint", "text", "False", "computed", ("run.resume",),
        about="True goes on from the newest checkpoint, or starts when there is none; or the path of one"),
    Row("ckpt_save_interval", "whole", 1, "computed", ("run.save.every",), least=1, about="epochs between checkpoints"),
    Row("checkpointing_steps", "whole", None, "computed", ("run.save.every",), least=1, unit="steps",
        about="micro-batches between checkpoints, instead of epochs"),
    Row("ckpt_max_keep", "whole", 10, "mapped", ("run.save.keep",), least=1, about="checkpoints that stay"),
    Row("log_level", "text", "logging.INFO", "without effect", choices=LEVELS,
        about="everything is said, and kept in run.log"),
    Row("log_interval", "whole", 1, "computed", ("run.log_every",), least=1, unit="steps", about="micro-batches there"),
    switch("profile", "run.profile.steps", "run.profile.folder", optional=True,
           fixed={"run.profile.steps": 3, "run.profile.folder": "profile_data"},
            about="a trace of a few steps in ./profile_data, and the run goes on; there, it ends"),
)  # fmt: skip

OUTSIDE = (
    Row("output_dir", "text", "output", "computed", ("run.folder", "run.name", "run.export.link"),
        about="the run folder; models lie in its ckpt/"),
    Row("output_path", "text", None, "computed", ("run.folder",), about="the same by another name"),
    switch("enable_flash_attention", outcome="without effect",
            about="torch takes the fastest kernel that can do the masks"),
    switch("global_bf16", "run.half", about="everything in bf16, norms as well"),
    switch("drop_overflow_update", default=True, outcome="without effect",
            about="a step that is not finite never moves anything"),
    Row("jit_level", "text", None, "without effect", choices=("O0", "O1", "O2"),
        about="torch.compile has no such levels; --mode says whether it compiles"),
    switch("enable_dvm", outcome="without effect", about="fusion of kernels of that device"),
    switch("enable_parallel_fusion", default=True, outcome="without effect",
           about="the update is one pass in any case"),
    Row("sp_size", "whole", 1, "refused",
        about="sharing one clip among several devices is not supported yet; leave it out, and use run.runtime=fsdp and "
        "--use_recompute True for memory"),
    Row("vae_latent_folder", "text", None, "refused",
        about="is unfinished there; `mezzotint cache` with data.cache.latents=true keeps latents"),
)  # fmt: skip

ROWS = (
    *DATA, *MODEL, *ACCELERATION, *PRECISION, *LOADING, *UPDATE, *ENVIRONMENT, *LENGTH, *SAVING, *OUTSIDE,
)  # fmt: skip
DOCUMENTED = 73
