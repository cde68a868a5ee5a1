"""Writes the shipped model `tiny-latte`: configurations and a small tokenizer, no weights.

    python tools/make_tiny_latte_assets.py [FOLDER]

The networks have the module trees and names of LatteT2V, its causal autoencoder and T5 v1.1's encoder, with narrow
channels: under a million parameters in all, so that clips of a few frames and 32 to 64 pixels train on a CPU at several
steps a second. The tokenizer has the words of tiny-sd's list and single characters. Running the tool again writes the
same bytes.
"""

from __future__ import annotations

import json
import math
import string
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from make_tiny_sd_assets import WORD_LIST, write_json

SPECIAL = ("<pad>", "</s>", "<unk>")
SPACE = "▁"

TRANSFORMER: dict[str, Any] = {
    "_class_name": "LatteT2V",
    "activation_fn": "gelu-approximate",
    "attention_bias": True,
    "attention_head_dim": 12,
    "attention_type": "default",
    "caption_channels": 32,
    "compress_kv_factor": 1,
    "cross_attention_dim": 48,
    "double_self_attention": False,
    "dropout": 0.0,
    "in_channels": 4,
    "model_max_length": 24,
    "norm_elementwise_affine": False,
    "norm_eps": 1e-06,
    "norm_num_groups": 32,
    "norm_type": "ada_norm_single",
    "num_attention_heads": 4,
    "num_embeds_ada_norm": 1000,
    "num_layers": 2,
    "num_vector_embeds": None,
    "only_cross_attention": False,
    "out_channels": 8,
    "patch_size": 2,
    "patch_size_t": 1,
    "rope_scaling_type": "linear",
    "sample_size": [8, 8],
    "upcast_attention": False,
    "use_linear_projection": False,
    "use_rope": False,
    "video_length": 2,
}

VAE: dict[str, Any] = {
    "_class_name": "CausalVAEModel",
    "attn_resolutions": [],
    "decoder_attention": "AttnBlock3DFix",
    "decoder_conv_in": "CausalConv3d",
    "decoder_conv_out": "CausalConv3d",
    "decoder_mid_resnet": "ResnetBlock3D",
    "decoder_resnet_blocks": ["ResnetBlock3D"] * 3,
    "decoder_spatial_upsample": ["SpatialUpsample2x"] * 3,
    "decoder_temporal_upsample": ["", "TimeUpsampleRes2x", "TimeUpsampleRes2x"],
    "double_z": True,
    "dropout": 0.0,
    "embed_dim": 4,
    "encoder_attention": "AttnBlock3DFix",
    "encoder_conv_in": "Conv2d",
    "encoder_conv_out": "CausalConv3d",
    "encoder_mid_resnet": "ResnetBlock3D",
    "encoder_resnet_blocks": ["ResnetBlock2D"] * 3,
    "encoder_spatial_downsample": ["Downsample"] * 3,
    "encoder_temporal_downsample": ["", "TimeDownsampleRes2x", "TimeDownsampleRes2x"],
    "hidden_size": 32,
    "hidden_size_mult": [1, 1, 1],
    "num_res_blocks": 1,
    "q_conv": "CausalConv3d",
    "resolution": 64,
    "z_channels": 4,
}

TEXT: dict[str, Any] = {
    "architectures": ["T5EncoderModel"],
    "d_ff": 32,
    "d_kv": 8,
    "d_model": 32,
    "decoder_start_token_id": 0,
    "dropout_rate": 0.0,
    "eos_token_id": 1,
    "feed_forward_proj": "gated-gelu",
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "t5",
    "num_heads": 4,
    "num_layers": 2,
    "pad_token_id": 0,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32,
    "torch_dtype": "float32",
}

SCHEDULER: dict[str, Any] = {
    "_class_name": "DDIMScheduler",
    "beta_end": 0.02,
    "beta_schedule": "linear",
    "beta_start": 0.0001,
    "clip_sample": False,
    "num_train_timesteps": 1000,
    "prediction_type": "epsilon",
    "set_alpha_to_one": True,
    "steps_offset": 0,
    "timestep_spacing": "leading",
    "trained_betas": None,
}

INDEX: dict[str, Any] = {
    "_class_name": "LatteT2VPipeline",
    "scheduler": ["diffusers", "DDIMScheduler"],
    "text_encoder": ["transformers", "T5EncoderModel"],
    "tokenizer": ["transformers", "T5Tokenizer"],
    "vae": ["opensora", "CausalVAEModel"],
}


def vocabulary() -> list[tuple[str, float]]:
    """Pieces with their scores: whole words are likelier than their letters, the commoner the likelier."""
    words = list(dict.fromkeys(WORD_LIST.split()))
    letters = [c for c in string.printable if not c.isspace()]
    pieces = [(name, 0.0) for name in SPECIAL] + [(SPACE, -6.0)]
    pieces += [(SPACE + word, round(-2.0 - math.log(2 + rank) / 2, 4)) for rank, word in enumerate(words)]
    return pieces + [(letter, -8.0) for letter in letters if letter not in dict(pieces)]


def tokenizer(pieces: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """The tokenizers library's file for them: cut at white space, each word by its likeliest pieces, `</s>` at the
    end."""
    space = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always", "split": True}
    added = [
        {"id": i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for i, name in enumerate(SPECIAL)
    ]  # fmt: skip
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    template = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, end],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, end, {"Sequence": {"id": "B", "type_id": 0}}, end],
        "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}},
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFKC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
        "post_processor": template,
        "decoder": space,
        "model": {"type": "Unigram", "unk_id": 2, "vocab": [list(piece) for piece in pieces], "byte_fallback": False},
    }


def main(arguments: Sequence[str]) -> None:
    """Writes the model into the folder given, or into the package."""
    here = Path(__file__).resolve().parent.parent / "src" / "mezzotint" / "assets" / "models" / "tiny-latte"
    folder = Path(arguments[0]) if arguments else here
    pieces = vocabulary()
    (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
    text = json.dumps(tokenizer(pieces), ensure_ascii=False)
    (folder / "tokenizer" / "tokenizer.json").write_text(text + "\n", encoding="utf-8")
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    values = {"tokenizer_class": "T5Tokenizer", "extra_ids": 0, "additional_special_tokens": []}
    write_json(folder / "tokenizer" / "tokenizer_config.json", {**names, **values, "model_max_length": 24})
    write_json(folder / "config.json", TRANSFORMER)
    write_json(folder / "vae" / "config.json", VAE)
    write_json(folder / "text_encoder" / "config.json", {**TEXT, "vocab_size": len(pieces)})
    write_json(folder / "scheduler" / "scheduler_config.json", SCHEDULER)
    write_json(folder / "model_index.json", INDEX)
    print(f"{folder}: {len(pieces)} tokens")


if __name__ == "__main__":
    main(sys.argv[1:])
