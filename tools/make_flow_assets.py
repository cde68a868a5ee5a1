"""Writes what single files of FLUX.1, Chroma and Stable Diffusion 3 need and do not contain: configurations, and T5's
vocabulary.

    python tools/make_flow_assets.py WHEEL [ASSETS]

WHEEL is diffsynth 1.1.2 from PyPI (Apache License 2.0), which contains the tokenizer of google/t5-v1_1-xxl (Apache
License 2.0). The configurations have the published values: widths, layers, heads, schedules. Running the tool again
writes the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from make_sd_assets import text_encoder, tokenizer
from make_tiny_sd_assets import END, VAE, write_json

TOKENIZER = "diffsynth/tokenizer_configs/flux/tokenizer_2/tokenizer.json"
CLIP_L = text_encoder(768, 12, 12, 768, "quick_gelu")
CLIP_G = text_encoder(1280, 32, 20, 1280, "gelu")
PROJECTED = {"architectures": ["CLIPTextModelWithProjection"]}
T5 = {
    "architectures": ["T5EncoderModel"], "d_ff": 10240, "d_kv": 64, "d_model": 4096, "decoder_start_token_id": 0,
    "dense_act_fn": "gelu_new", "dropout_rate": 0.1, "eos_token_id": 1, "feed_forward_proj": "gated-gelu",
    "initializer_factor": 1.0, "is_encoder_decoder": True, "is_gated_act": True, "layer_norm_epsilon": 1e-06,
    "model_type": "t5", "num_decoder_layers": 24, "num_heads": 64, "num_layers": 24, "output_past": True,
    "pad_token_id": 0, "relative_attention_max_distance": 128, "relative_attention_num_buckets": 32,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": 32128,
}  # fmt: skip
T5_TOKENIZER = {
    "eos_token": "</s>", "extra_ids": 100, "model_max_length": 512, "pad_token": "<pad>",
    "tokenizer_class": "T5Tokenizer", "unk_token": "<unk>",
}  # fmt: skip


def autoencoder(scale: float, shift: float) -> dict[str, Any]:
    """An autoencoder with 16 channels."""
    wide = {"block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "norm_num_groups": 32}
    plain = {"use_quant_conv": False, "use_post_quant_conv": False, "force_upcast": True, "latent_channels": 16}
    return VAE | wide | plain | {"sample_size": 1024, "scaling_factor": scale, "shift_factor": shift}


def scheduler(shift: float, *, is_dynamic: bool | None = None) -> dict[str, Any]:
    """The schedule of noise levels. is_dynamic: whether the shift depends on the image's size; None has no such
    option."""
    base = {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": shift}
    sizes = {"base_image_seq_len": 256, "base_shift": 0.5, "max_image_seq_len": 4096, "max_shift": 1.15}
    return base if is_dynamic is None else base | sizes | {"use_dynamic_shifting": is_dynamic}


def flux(*, is_dev: bool, **values: Any) -> dict[str, dict[str, Any]]:
    """The configurations of FLUX.1 dev or schnell, by part. values: further ones of the denoiser."""
    return {
        "transformer": {
            "_class_name": "FluxTransformer2DModel", "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56],
            "guidance_embeds": is_dev, "in_channels": 64, "joint_attention_dim": 4096, "num_attention_heads": 24,
            "num_layers": 19, "num_single_layers": 38, "patch_size": 1, "pooled_projection_dim": 768, **values,
        },
        "vae": autoencoder(0.3611, 0.1159),
        "text_encoder": CLIP_L,
        "text_encoder_2": T5,
        "scheduler": scheduler(3.0, is_dynamic=True) if is_dev else scheduler(1.0, is_dynamic=False),
    }  # fmt: skip


def chroma() -> dict[str, dict[str, Any]]:
    """The configurations of Chroma1, by part. Noise levels are those of FLUX.1 dev, as in ai-toolkit and sd-scripts."""
    parts = flux(is_dev=True)
    lacks = ("guidance_embeds", "pooled_projection_dim")
    own = {"approximator_hidden_dim": 5120, "approximator_layers": 5, "approximator_num_channels": 64}
    transformer = {key: value for key, value in parts["transformer"].items() if key not in lacks}
    return {
        "transformer": transformer | own | {"_class_name": "ChromaTransformer2DModel"},
        "vae": parts["vae"],
        "text_encoder": T5,
        "scheduler": parts["scheduler"],
    }


def sd3(heads: int, positions: int, **values: Any) -> dict[str, dict[str, Any]]:
    """The configurations of Stable Diffusion 3, by part. positions: the side of its table of positions."""
    return {
        "transformer": {
            "_class_name": "SD3Transformer2DModel", "attention_head_dim": 64, "caption_projection_dim": 64 * heads,
            "in_channels": 16, "joint_attention_dim": 4096, "num_attention_heads": heads, "num_layers": heads,
            "out_channels": 16, "patch_size": 2, "pooled_projection_dim": 2048, "pos_embed_max_size": positions,
            "sample_size": 128, **values,
        },
        "vae": autoencoder(1.5305, 0.0609),
        "text_encoder": CLIP_L | PROJECTED,
        "text_encoder_2": CLIP_G | PROJECTED,
        "text_encoder_3": T5,
        "scheduler": scheduler(3.0),
    }  # fmt: skip


MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "flux-dev": flux(is_dev=True),
    "flux-schnell": flux(is_dev=False),
    "flux-fill": flux(is_dev=True, in_channels=384, out_channels=64),
    "chroma": chroma(),
    "sd3-medium": sd3(24, 192),
    "sd3.5-medium": sd3(24, 384, qk_norm="rms_norm", dual_attention_layers=list(range(13))),
    "sd3.5-large": sd3(38, 192, qk_norm="rms_norm"),
}
"""The configurations of each model, by part."""


PIPELINES = {"flux-fill": {"_class_name": "FluxFillPipeline"}}
"""What model_index.json of a model has other than its family."""


def tokenizers(family: str) -> dict[str, dict[str, dict[str, Any]]]:
    """The small files of the tokenizers, by folder; the vocabularies are shared."""
    t5 = {"tokenizer_config.json": T5_TOKENIZER}
    if family == "chroma":
        return {"tokenizer": t5}
    if family == "flux":
        return {"tokenizer": tokenizer(END), "tokenizer_2": t5}
    return {"tokenizer": tokenizer(END), "tokenizer_2": tokenizer("!"), "tokenizer_3": t5}


def index(family: str) -> dict[str, Any]:
    """model_index.json."""
    clip, t5 = ["transformers", "CLIPTokenizer"], ["transformers", "T5TokenizerFast"]
    of_clip, of_t5 = "CLIPTextModel", ["transformers", "T5EncoderModel"]
    both = {
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"], "tokenizer": clip,
        "vae": ["diffusers", "AutoencoderKL"],
    }  # fmt: skip
    if family == "flux":
        own = {
            "_class_name": "FluxPipeline", "text_encoder": ["transformers", of_clip], "text_encoder_2": of_t5,
            "tokenizer_2": t5, "transformer": ["diffusers", "FluxTransformer2DModel"],
        }  # fmt: skip
    elif family == "chroma":
        own = {
            "_class_name": "ChromaPipeline", "text_encoder": of_t5, "tokenizer": t5,
            "transformer": ["diffusers", "ChromaTransformer2DModel"],
        }  # fmt: skip
    else:
        projected = ["transformers", f"{of_clip}WithProjection"]
        own = {
            "_class_name": "StableDiffusion3Pipeline", "text_encoder": projected, "text_encoder_2": projected,
            "text_encoder_3": of_t5, "tokenizer_2": clip, "tokenizer_3": t5,
            "transformer": ["diffusers", "SD3Transformer2DModel"],
        }  # fmt: skip
    return dict(sorted({**both, **own}.items()))


def main(arguments: Sequence[str]) -> None:
    """Writes the folders of MODELS below `models`, and `tokenizers/t5`, in the folder given or the package's."""
    here = Path(__file__).resolve().parent.parent / "src" / "mezzotint" / "assets"
    assets = Path(arguments[1]) if len(arguments) > 1 else here
    vocabulary = json.loads(zipfile.ZipFile(arguments[0]).read(TOKENIZER))
    write_json(assets / "tokenizers" / "t5" / "tokenizer.json", vocabulary, indent=None)
    write_json(assets / "tokenizers" / "t5" / "tokenizer_config.json", T5_TOKENIZER)
    for name, parts in MODELS.items():
        folder, family = assets / "models" / name, re.match(r"flux|sd3|chroma", name)[0]  # type: ignore[index]
        for part, config in parts.items():
            write_json(folder / part / ("scheduler_config.json" if part == "scheduler" else "config.json"), config)
        for part, files in tokenizers(family).items():
            for file, table in files.items():
                write_json(folder / part / file, table)
        write_json(folder / "model_index.json", index(family) | PIPELINES.get(name, {}))
    print(f"{assets}: {', '.join(MODELS)}, {len(vocabulary['model']['vocab'])} tokens of T5")


if __name__ == "__main__":
    main(sys.argv[1:])
