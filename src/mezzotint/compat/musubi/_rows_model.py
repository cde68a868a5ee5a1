"""Options of the model, of adapters, of memory and of processes."""

from __future__ import annotations

from mezzotint.compat.kit.adapters import FACTORS
from mezzotint.compat.kit.dialect import ignored, refused, row, waits
from mezzotint.compat.musubi._scripts import SCRIPTS

ONE_FRAME = "one-frame training"
LAYERED = "Qwen-Image-Layered"
FUN_CONTROL = "Wan Fun Control"
LAST_FRAME = "Wan first and last frame to video"
ONE_ADAPTER = "one adapter for both of Wan's denoisers"
"""Features that options wait for."""

_ATTENTION = "torch's own attention is used, which takes as little memory"
_COMPILER = "models are compiled by block, with torch's usual choices"
_METADATA = "a text for the file's header; Mezzotint writes its own header"
_ENCODERS = "captions are encoded once, layer by layer where the encoder does not fit"
_SWAP = "run.offload decides how blocks are moved"
_TWO = "acts only with dit_high_noise"
_UPLOAD = "Mezzotint uploads nothing; leave it out, and upload the files afterwards"

# fmt: off
MODEL = (
    row("script", str, "model.family model.adapter.kind", "the script's name without .py, for a command without it",
        choices=tuple(SCRIPTS)),
    row("config_file", str, "model.path", "a TOML file of these options, also in sections and without its suffix; the "
        "command line overrides it"),
    row("dit", str, "model.path", "the file of the transformer; model.config=FOLDER before the -- names the model's "
        "folder, for its configurations and tokenizer"),
    row("vae", str, "model.vae", "the file of the autoencoder; of FLUX.2, that of the model's folder is used"),
    row("vae_dtype", str, "run.vae_dtype", "float32, bfloat16 or float16"),
    row("guidance_scale", 1.0, "model.flux2.guidance", "of FLUX.2 dev; FLUX.1 Kontext is trained with 1", least=0),
    ignored("sdpa", False, _ATTENTION),
    ignored("xformers", False, _ATTENTION),
    ignored("flash_attn", False, _ATTENTION),
    ignored("flash3", False, _ATTENTION),
    refused("sage_attn", False, "SageAttention has no backward pass; use --sdpa, as the scripts demand"),
    ignored("split_attn", False, _ATTENTION),
    row("gradient_checkpointing", False, "run.gradient_checkpointing.enabled", "less memory, more arithmetic"),
    ignored("gradient_checkpointing_cpu_offload", False, "activations stay on the device; it saves memory only"),
    row("compile", False, "run.compile", "by block"),
    ignored("compile_backend", "inductor", _COMPILER),
    ignored("compile_cache_size_limit", int, _COMPILER),
    ignored("compile_dynamic", str, _COMPILER, choices=("true", "false", "auto")),
    ignored("compile_fullgraph", False, _COMPILER),
    ignored("compile_mode", "default", _COMPILER,
            choices=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")),
    row("dynamo_backend", "NO", "run.compile", "any other than NO compiles, as --compile"),
    ignored("dynamo_dynamic", False, _COMPILER),
    ignored("dynamo_fullgraph", False, _COMPILER),
    ignored("dynamo_mode", str, _COMPILER, choices=("default", "reduce-overhead", "max-autotune")),
    row("cuda_allow_tf32", False, "run.tf32", "float32 products in TF32"),
    ignored("cuda_cudnn_benchmark", False, "it changes only speed"),
    row("fp8_base", False, "run.frozen_dtype", "the frozen model of an adapter as int8 with a scale per row"),
    row("fp8_scaled", False, "run.frozen_dtype", "as --fp8_base, which it needs"),
    row("blocks_to_swap", int, "run.offload.blocks", "as many blocks stay on the device as fit; results do not depend "
        "on it"),
    ignored("block_swap_h2d_only", False, _SWAP),
    ignored("block_swap_ring_size", 2, _SWAP),
    ignored("use_pinned_memory_for_block_swap", False, _SWAP),
    ignored("img_in_txt_in_offloading", False, _SWAP),
    ignored("disable_numpy_memmap", False, "it changes only how a file is read"),
    *(ignored(f"metadata_{name}", str, _METADATA) for name in (
        "arch", "author", "description", "license", "reso", "tags", "title")),
)
"""Options of all scripts."""

ADAPTER = (
    row("network_module", str, "model.adapter.kind model.adapter.targets",
        "the script's networks.lora_…, networks.loha or networks.lokr"),
    row("network_dim", int, "model.adapter.rank", "4 if it is not given", least=1),
    row("network_alpha", 1.0, "model.adapter.alpha", "0 is the rank", least=0),
    row("network_args", list, "model.adapter.factor", "key=value, see below"),
    row("network_dropout", float, "model.adapter.dropout", "of the adapter's inputs; in the scripts, behind the first "
        "factor"),
    row("scale_weight_norms", float, "model.adapter.max_norm", "the largest norm of a layer's change", above=0),
    row("network_weights", str, "model.adapter.path", "an adapter to continue; its ranks and alphas are used"),
    ignored("dim_from_weights", False, "ranks and alphas always come from the file"),
    refused("base_weights", list, "merges adapters into the model first; use the command merge"),
    refused("base_weights_multiplier", tuple, "merges adapters into the model first; use the command merge"),
)

READING = (
    row("text_encoder", str, "model.over", "the file of the text encoder"),
)
WAN = (
    row("task", "t2v-14B", "model.family model.train", "text or image to video; others wait (flf2v-14B: unverified)",
        choices=(
        "t2v-14B", "t2v-1.3B", "i2v-14B", "t2i-14B", "flf2v-14B", "t2v-1.3B-FC", "t2v-14B-FC", "i2v-14B-FC", "i2v-A14B",
        "t2v-A14B")),
    row("t5", str, "model.over", "the file of the text encoder; of a .pth file, that of the model's folder is used"),
    row("clip", str, "model.over", "the file of the image encoder of i2v-14B; of a .pth file, that of the model's "
        "folder is used"),
    waits("dit_high_noise", str, ONE_ADAPTER, "the file of the second transformer, trained with the same adapter"),
    ignored("offload_inactive_dit", False, _TWO),
    ignored("timestep_boundary", float, _TWO),
    ignored("force_v2_1_time_embedding", False, "it saves memory only"),
    ignored("vae_cache_cpu", False, "it saves memory only"),
    waits("one_frame", False, ONE_FRAME, "images by one-frame inference"),
)
T5 = (ignored("fp8_t5", False, _ENCODERS),)
KONTEXT = (
    row("text_encoder1", str, "model.over", "the file of T5"),
    row("text_encoder2", str, "model.over", "the file of CLIP"),
)
QWEN = (
    row("edit", False, "model.config", "an old name of --model_version=edit"),
    row("edit_plus", False, "model.config", "an old name of --model_version=edit-2509"),
    waits("num_layers", int, "pruned Qwen-Image", "the transformer's first layers only"),
    waits("remove_first_image_from_target", False, LAYERED, "of Qwen-Image-Layered"),
    ignored("fp8_vl", False, _ENCODERS),
)
Z_IMAGE = (
    ignored("fp8_llm", False, _ENCODERS),
    waits("use_32bit_attention", False, "attention in float32", "attention in float32"),
)
FLUX_2 = (ignored("fp8_text_encoder", False, _ENCODERS),)
VERSION = (
    row("model_version", str, "model.family model.flux2.distilled",
        "FLUX.2: dev by default; Qwen-Image: original", choices=(
        "dev", "klein-4b", "klein-base-4b", "klein-9b", "klein-base-9b", "original", "layered", "edit", "edit-2509",
        "edit-2511")),
)
WEIGHTS = (
    row("full_bf16", False, "run.weight_dtype", "trained weights in bf16, without master weights"),
    row("fused_backward_pass", False, "optim.clip.scope", "gradients are clipped by tensor"),
    ignored("mem_eff_save", False, "it saves memory only"),
)
PATCH = (ignored("block_swap_optimizer_patch_params", False, _SWAP),)

UPLOADS = tuple(
    refused(name, kind, _UPLOAD) for name, kind in {
        "huggingface_repo_id": str, "huggingface_repo_type": str, "huggingface_path_in_repo": str,
        "huggingface_token": str, "huggingface_repo_visibility": str, "save_state_to_huggingface": False,
        "resume_from_huggingface": False, "async_upload": False,
    }.items()
)
PROCESSES = (
    row("ddp_timeout", int, "run.timeout_seconds", "in minutes", least=1),
    ignored("ddp_gradient_as_bucket_view", False, "it changes only memory and speed"),
    ignored("ddp_static_graph", False, "it changes only memory and speed"),
)
METADATA = (
    ignored("no_metadata", False, "the file's header has Mezzotint's metadata"),
    ignored("training_comment", str, _METADATA),
)

NETWORK = (
    row("factor", -1, "model.adapter.factor", "of networks.lokr"),
    ignored("verbose", False, "it prints more"),
    ignored("conv_dim", int, "trained layers are linear"),
    ignored("conv_alpha", float, "trained layers are linear"),
    *FACTORS,
    waits("exclude_patterns", str, "adapters of chosen blocks", "regular expressions of layers"),
    waits("include_patterns", str, "adapters of chosen blocks", "regular expressions of layers"),
)
"""Arguments of the networks, `--network_args`."""
# fmt: on
