"""Options of the model, of adapters, of learned tokens and of memory, by the scripts that have them."""

from __future__ import annotations

from mezzotint.compat.kit.dialect import Row, ignored, refused, row, waits
from mezzotint.compat.kohya._scripts import SCRIPTS

_ATTENTION = "torch's own attention is used, which takes as little memory"
_METADATA = "a text for the file's header; Mezzotint writes its own header"
_DEEPSPEED = "acts only with --deepspeed"
_UPLOAD = "Mezzotint uploads nothing; leave it out, and upload the files afterwards"

# fmt: off
MODEL = (
    row("script", str, "model.family model.adapter.kind", "the script's name without .py, for a command without it",
        choices=tuple(SCRIPTS)),
    row("config_file", str, "model.path", "a TOML file of these options, also in sections and without its suffix; the "
        "command line overrides it"),
    refused("output_config", False, "writes a settings file and trains nothing; use translate instead of train"),
    row("pretrained_model_name_or_path", str, "model.path", "a folder in diffusers' layout, a single file or a hub id"),
    row("vae", str, "model.vae", "an autoencoder that replaces the model's"),
    ignored("v2", False, "Stable Diffusion 2.x is recognised by its files"),
    row("v_parameterization", False, "model.prediction", "v; without it epsilon, whatever the model's files say"),
    row("clip_skip", int, "model.clip_skip", "n counts the last layer as 1: n − 1; SDXL has no choice", least=1),
    row("max_token_length", str, "model.caption_tokens", "75 if it is not given; no effect for SD3 and FLUX.1",
        choices=("150", "225")),
    ignored("tokenizer_cache_dir", str, "tokenizers come with the model"),
    ignored("xformers", False, _ATTENTION),
    ignored("sdpa", False, _ATTENTION),
    ignored("mem_eff_attn", False, _ATTENTION),
    row("gradient_checkpointing", False, "run.gradient_checkpointing.enabled", "less memory, more arithmetic"),
    row("torch_compile", False, "run.compile", "by block"),
    ignored("dynamo_backend", "inductor", "compiled models use inductor", choices=(
        "eager", "aot_eager", "inductor", "aot_ts_nvfuser", "nvprims_nvfuser", "cudagraphs", "ofi", "fx2trt", "onnxrt",
        "tensort", "ipex", "tvm")),
    ignored("lowram", False, "weights are loaded directly in their final type and place"),
    ignored("highvram", False, "frozen parts stay on the device anyway"),
    row("fp8_base", False, "run.frozen_dtype", "the frozen model of an adapter as int8 with a scale per row"),
    row("full_fp16", False, "run.weight_dtype", "trained weights in fp16, without master weights"),
    row("full_bf16", False, "run.weight_dtype", "trained weights in bf16, without master weights"),
    *(ignored(f"metadata_{name}", str, _METADATA) for name in (
        "author", "description", "is_negative_embedding", "license", "merged_from", "preprocessor", "tags",
        "thumbnail", "title", "usage_hint")),
    row("metadata_trigger_phrase", str, "model.adapter.trigger", "written into the files of an adapter"),
)
"""Options of all scripts."""

ADAPTER = (
    row("network_module", str, "model.adapter.kind model.adapter.targets",
        "networks.lora, its variants of other models, or lycoris.kohya with algo in network_args"),
    row("network_dim", int, "model.adapter.rank", "4 if it is not given", least=1),
    row("network_alpha", 1.0, "model.adapter.alpha", "0 is the rank", least=0),
    row("network_args", list, "model.adapter.targets model.adapter.rank_pattern model.adapter.alpha_pattern",
        "key=value, see below"),
    row("network_dropout", float, "model.adapter.dropout", "of the adapter's inputs; in the script, behind the first "
        "factor"),
    row("scale_weight_norms", float, "model.adapter.max_norm", "the largest norm of a layer's change", above=0),
    row("network_weights", str, "model.adapter.path", "an adapter to continue; its ranks and alphas are used"),
    ignored("dim_from_weights", False, "ranks and alphas always come from the file"),
    row("network_train_unet_only", False, "model.train", "only the denoiser's adapter"),
    row("network_train_text_encoder_only", False, "model.train", "only the text encoders' adapters"),
    row("unet_lr", float, "optim.lr", "rate of the denoiser's adapter; 0 trains none"),
    row("text_encoder_lr", tuple, "optim.part_lr", "rate of the text encoders' adapters, or one for each; 0 trains "
        "none"),
    refused("base_weights", list, "merges adapters into the model first; use the command merge"),
    refused("base_weights_multiplier", tuple, "merges adapters into the model first; use the command merge"),
    row("fp8_base_unet", False, "run.frozen_dtype", "as --fp8_base; text encoders, too"),
    ignored("no_metadata", False, "the file's header has Mezzotint's metadata"),
    ignored("training_comment", str, _METADATA),
    refused("initial_epoch", int, "skips the start of a run; Mezzotint resumes from its checkpoints: leave it out"),
    refused("initial_step", int, "skips the start of a run; Mezzotint resumes from its checkpoints: leave it out"),
    refused("skip_until_initial_step", False, "skips the start of a run; Mezzotint resumes from its checkpoints: leave "
            "it out"),
    row("validation_split", 0.0, "data.holdout.fraction", "the share of images that is held out", least=0),
    row("validate_every_n_steps", int, "run.validation.every", "without both, after each epoch", least=1),
    row("validate_every_n_epochs", int, "run.validation.every", "without both, after each epoch", least=1),
    row("max_validation_steps", int, "data.holdout.max_samples", "batches of validation", least=1),
    ignored("validation_seed", int, "held-out images are drawn from the run's seed"),
)
"""Options of the scripts of adapters."""

TOKENS = (
    row("token_string", str, "model.tokens.words", "the new token"),
    row("init_word", str, "model.tokens.words", "the words that it is initialised from"),
    row("num_vectors_per_token", 1, "model.tokens.vectors", "vectors of the token", least=1),
    row("weights", str, "model.tokens.files", "a file of the token to continue"),
    row("use_object_template", False, "data.captions.template", "captions like `a photo of a TOKEN`"),
    row("use_style_template", False, "data.captions.template", "captions like `a painting in the style of TOKEN`"),
)
"""Options of textual inversion."""

MEMORY = (
    row("cache_text_encoder_outputs", False, "data.cache.text", "captions are encoded once"),
    row("cache_text_encoder_outputs_to_disk", False, "data.cache.text", "the cache is always on disk"),
)
READING = (ignored("disable_mmap_load_safetensors", False, "it changes only how fast a file is read"),)
"""Options of the scripts of SDXL, SD3 and FLUX.1."""

FLOW_MODEL = (
    row("clip_l", str, "model.over", "a file of the text encoder CLIP-L"),
    row("t5xxl", str, "model.over", "a file of the text encoder T5"),
    row("t5xxl_max_token_length", int, "model.flux.t5_tokens model.sd3.t5_tokens model.chroma.text_tokens",
        "Chroma: 512; FLUX.1: 512 for dev, 256 for schnell; SD3: 256", least=2, most=512),
    row("apply_t5_attn_mask", False, "model.family", "padding of T5's text is not attended to, as always for Chroma, "
        "which needs it; SD3 and FLUX.1 attend to it"),
    ignored("text_encoder_batch_size", int, "it changes only the speed of encoding captions"),
    row("blocks_to_swap", int, "run.offload.blocks", "as many blocks stay on the device as fit; results do not depend "
        "on it"),
)

FLUX_MODEL = (
    row("ae", str, "model.vae", "a file of the autoencoder"),
    row("guidance_scale", 3.5, "model.flux.guidance", "the guidance given to the model in training; 0 for Chroma",
        least=0),
    row("model_type", "flux", "model.family", "chroma, with flux_train_network",
        choices=("flux", "chroma")),
    refused("controlnet_model_name_or_path", str, "ControlNets are not supported; leave it out"),
)

SD3_MODEL = (
    row("clip_g", str, "model.over", "a file of the text encoder CLIP-G"),
    *(waits(f"{name}_dropout_rate", 0.0, "dropout of single text encoders", "its text is left out with this chance")
      for name in ("clip_l", "clip_g", "t5")),
    waits("apply_lg_attn_mask", False, "attention masks of text", "padding of CLIP's text is zeroed"),
    waits("enable_scaled_pos_embed", False, "scaled position embeddings", "SD3.5 medium at several sizes"),
    waits("pos_emb_random_crop_rate", 0.0, "scaled position embeddings", "random crops of position embeddings"),
    ignored("t5xxl_device", str, "frozen text encoders are placed where there is room"),
    ignored("t5xxl_dtype", str, "frozen text encoders have the type of run.frozen_dtype"),
    ignored("save_clip", False, "exported models are complete folders"),
    ignored("save_t5xxl", False, "exported models are complete folders"),
)

CHECKPOINTING = (
    ignored("cpu_offload_checkpointing", False, "it saves memory only; activations stay on the device"),
)
VAE_TYPE = (row("no_half_vae", False, "run.vae_dtype", "the autoencoder in float32"),)
ENCODER_TRAINING = (row("train_text_encoder", False, "model.train", "all text encoders but T5 are trained"),)
ENCODER_RATE = (row("learning_rate_te", float, "optim.part_lr", "rate of the text encoder"),)
ENCODER_RATES = (
    row("learning_rate_te1", float, "optim.part_lr", "rate of the first text encoder; 0 does not train it"),
    row("learning_rate_te2", float, "optim.part_lr", "rate of the second text encoder; 0 does not train it"),
)
SD3_TRAINING = (
    ignored("learning_rate_te3", float, "T5 is not trained"),
    waits("train_t5xxl", False, "training of T5", "T5 is trained, too"),
    waits("num_last_block_to_freeze", int, "freezing of last blocks", "the last blocks are frozen"),
    ignored("use_t5xxl_cache_only", False, "it saves memory only"),
)
FLUX_TRAINING = (
    ignored("double_blocks_to_swap", int, "an old option; use --blocks_to_swap"),
    ignored("single_blocks_to_swap", int, "an old option; use --blocks_to_swap"),
    ignored("mem_eff_save", False, "it saves memory only"),
)
FUSED = (
    row("blockwise_fused_optimizers", False, "optim.clip.scope", "gradients are clipped by tensor"),
)
FUSED_GROUPS = (
    row("fused_optimizer_groups", int, "optim.clip.scope", "gradients are clipped by tensor"),
)
ONE_SCRIPT: dict[str, tuple[Row, ...]] = {
    "train_db": (
        row("stop_text_encoder_training", int, "model.train", "-1 does not train the text encoder"),
        ignored("no_token_padding", False, "captions are padded to 77 tokens, as models were trained"),
    ),
    "sdxl_train": (row("block_lr", str, "optim.part_lr", "rates of 23 blocks of the U-Net, 0 for frozen"),),
    "flux_train_network": (ignored("split_mode", False, "an old option; use --blocks_to_swap"),),
    "fine_tune sdxl_train": (ignored("diffusers_xformers", False, _ATTENTION),),
    "train_db fine_tune sdxl_train flux_train sd3_train": (
        ignored("use_safetensors", False, "models are written as safetensors anyway"),
    ),
    "flux_train sd3_train": (ignored("skip_latents_validity_check", False, "cached latents are always checked"),),
}

UPLOADS = tuple(
    refused(name, kind, _UPLOAD) for name, kind in {
        "huggingface_repo_id": str, "huggingface_repo_type": str, "huggingface_path_in_repo": str,
        "huggingface_token": str, "huggingface_repo_visibility": str, "save_state_to_huggingface": False,
        "resume_from_huggingface": False, "async_upload": False,
    }.items()
)

PROCESSES = (
    refused("deepspeed", False, "run.runtime=fsdp before the -- shards a model over processes; leave it out"),
    ignored("zero_stage", 2, _DEEPSPEED),
    *(ignored(name, str, _DEEPSPEED) for name in (
        "offload_optimizer_device", "offload_optimizer_nvme_path", "offload_param_device", "offload_param_nvme_path")),
    *(ignored(name, False, _DEEPSPEED) for name in (
        "zero3_init_flag", "zero3_save_16bit_model", "fp16_master_weights_and_gradients")),
    row("ddp_timeout", int, "run.timeout_seconds", "in minutes", least=1),
    ignored("ddp_gradient_as_bucket_view", False, "it changes only memory and speed"),
    ignored("ddp_static_graph", False, "it changes only memory and speed"),
)
# fmt: on
