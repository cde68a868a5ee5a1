"""Writes what single files of Stable Diffusion 1 and 2 need and do not hold: configurations, and CLIP's vocabulary.

    python tools/make_sd_assets.py BPE_FILE [ASSETS]

BPE_FILE is `bpe_simple_vocab_16e6.txt.gz` as the wheel open_clip_torch carries it (MIT, see LICENSES/). The
configurations say what the published models say: widths, layers, heads, schedules. Running the tool again writes the
same bytes.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from make_tiny_sd_assets import END, START, UNET, VAE, WORD_END, byte_symbols, write_json
from make_tiny_sd_assets import text_encoder as of_tiny

MERGES = 48_894
"""CLIP uses the first of the list: 49 408 tokens less two special ones and two for each byte."""


def write_vocabulary(bpe: Path, folder: Path) -> int:
    """Writes vocab.json and merges.txt from CLIP's list of merges. Returns the number of tokens."""
    lines = gzip.decompress(bpe.read_bytes()).decode("utf-8").split("\n")[1 : MERGES + 1]
    symbols = byte_symbols()
    tokens = [*symbols, *(s + WORD_END for s in symbols), *("".join(line.split()) for line in lines), START, END]
    write_json(folder / "vocab.json", {token: i for i, token in enumerate(tokens)}, indent=None)
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(tokens)


def tokenizer(pad: str) -> dict[str, dict[str, Any]]:
    """The small files of a tokenizer; the vocabulary is shared."""
    special = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": pad}
    settings = {
        "tokenizer_class": "CLIPTokenizer",
        "model_max_length": 77,
        "do_lower_case": True,
        "add_prefix_space": False,
        "errors": "replace",
    }
    return {"tokenizer_config.json": special | settings, "special_tokens_map.json": special}


def unet(sample: int, **values: Any) -> dict[str, Any]:
    """The denoiser of Stable Diffusion, for latents of `sample` pixels."""
    wide = {"block_out_channels": [320, 640, 1280, 1280], "cross_attention_dim": 768, "norm_num_groups": 32}
    return UNET | wide | {"sample_size": sample} | values


def vae(sample: int) -> dict[str, Any]:
    """The autoencoder, the same in all versions."""
    wide = {"block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "norm_num_groups": 32}
    return VAE | wide | {"sample_size": sample, "scaling_factor": 0.18215}


def text_encoder(width: int, layers: int, heads: int, projection: int, act: str) -> dict[str, Any]:
    """A CLIP text encoder."""
    wide = {"hidden_size": width, "intermediate_size": 4 * width, "projection_dim": projection, "hidden_act": act}
    deep = {"num_attention_heads": heads, "num_hidden_layers": layers, "pad_token_id": 1}
    return of_tiny(49408, start=0, end=2) | wide | deep


def scheduler(kind: str, prediction: str) -> dict[str, Any]:
    """The noise schedule of all versions, with the sampler that the published folder names."""
    steps = {"skip_prk_steps": True} if kind == "PNDMScheduler" else {}
    return {
        "_class_name": kind,
        "beta_end": 0.012,
        "beta_schedule": "scaled_linear",
        "beta_start": 0.00085,
        "clip_sample": False,
        "num_train_timesteps": 1000,
        "prediction_type": prediction,
        "set_alpha_to_one": False,
        **steps,
        "steps_offset": 1,
        "trained_betas": None,
    }


_H14 = {"attention_head_dim": [5, 10, 20, 20], "cross_attention_dim": 1024, "use_linear_projection": True}

MODELS: dict[str, dict[str, dict[str, Any]]] = {
    "sd1": {
        "unet": unet(64),
        "vae": vae(512),
        "text_encoder": text_encoder(768, 12, 12, 768, "quick_gelu"),
        "scheduler": scheduler("PNDMScheduler", "epsilon"),
    },
    "sd2": {
        "unet": unet(64, **_H14),
        "vae": vae(512),
        "text_encoder": text_encoder(1024, 23, 16, 512, "gelu"),
        "scheduler": scheduler("PNDMScheduler", "epsilon"),
    },
    "sd2-v": {
        "unet": unet(96, **_H14, upcast_attention=True),
        "vae": vae(768),
        "text_encoder": text_encoder(1024, 23, 16, 512, "gelu"),
        "scheduler": scheduler("DDIMScheduler", "v_prediction"),
    },
}


def index(kind: str) -> dict[str, Any]:
    """model_index.json."""
    return {
        "_class_name": "StableDiffusionPipeline",
        "feature_extractor": [None, None],
        "requires_safety_checker": False,
        "safety_checker": [None, None],
        "scheduler": ["diffusers", kind],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }


def main(arguments: Sequence[str]) -> None:
    """Writes `models/sd1`, `models/sd2`, `models/sd2-v` and `tokenizers/clip` below the folder given, or the
    package's."""
    here = Path(__file__).resolve().parent.parent / "src" / "mezzotint" / "assets"
    assets = Path(arguments[1]) if len(arguments) > 1 else here
    (assets / "tokenizers" / "clip").mkdir(parents=True, exist_ok=True)
    tokens = write_vocabulary(Path(arguments[0]), assets / "tokenizers" / "clip")
    for name, parts in MODELS.items():
        folder = assets / "models" / name
        for part, config in parts.items():
            write_json(folder / part / ("scheduler_config.json" if part == "scheduler" else "config.json"), config)
        for file, table in tokenizer(END if name == "sd1" else "!").items():
            write_json(folder / "tokenizer" / file, table)
        write_json(folder / "model_index.json", index(parts["scheduler"]["_class_name"]))
    print(f"{assets}: {', '.join(MODELS)}, {tokens} tokens")


if __name__ == "__main__":
    main(sys.argv[1:])
