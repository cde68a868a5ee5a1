"""Writes the shipped model `tiny-sd`: configurations and a small tokenizer in diffusers' layout, no weights.

    python tools/make_tiny_sd_assets.py [FOLDER]

The networks have Stable Diffusion 1's module tree and parameter names with narrow channels: about 3 million parameters
in all, so that images of 64 to 128 pixels train on a CPU at several steps a second. The tokenizer is byte-level like
CLIP's, with merges learnt from the word list below, so that it depends on no download; any text can be written in it.
Running the tool again writes the same bytes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

START, END, WORD_END = "<|startoftext|>", "<|endoftext|>", "</w>"
MERGES = 900

WORD_LIST = (
    "a an the this that these those of on in at by to from with without and or not near over under behind above below "
    "beside between front back left right top bottom side middle center corner next two one three four five six seven "
    "some many several few no its his her their is are was be has have "
    "photo photograph picture image drawing painting illustration sketch render portrait landscape close up view scene "
    "shot style cartoon watercolor oil pixel art black white monochrome color colour colorful bright dark light pale "
    "deep red green blue yellow orange purple violet pink brown grey gray gold golden silver cyan magenta beige "
    "circle square triangle rectangle star cross ring line dot shape disc diamond stripe spot pattern texture gradient "
    "small large big tiny huge tall short long wide narrow round flat old new young cute beautiful soft rough smooth "
    "shiny wet dry warm cold clear blurred sharp wooden metal glass stone brick paper plastic leather fabric "
    "background foreground field canvas wall floor table plate bowl cup mug coffee tea spoon desk window door room "
    "house building street road bridge city town night day morning evening sunset sun moon sky cloud clouds rain snow "
    "sea ocean lake river water wave beach sand island mountain hill forest tree trees leaf leaves flower flowers "
    "grass garden park rock stars galaxy space rocket planet earth cat dog bird horse cow fish lion tiger bear rabbit "
    "fox mouse owl duck chicken butterfly insect animal monster dragon robot character man woman boy girl child person "
    "people face head eye eyes hair nose mouth hand hands leg legs arm body tail wing wings hat shirt dress coat shoe "
    "sitting standing lying walking running flying looking holding wearing smiling reading playing "
    "car bus train boat ship plane bicycle motorcycle wheel camera cameraman tripod coin coins moon astronaut clock "
    "book text page letter sign lamp chair bed ball toy food fruit apple banana bread cake wine bottle "
    "retina cell cells microscope tissue surface gravel lawn stairs columns roman greek ancient coffeepot "
    "high low quality detailed realistic simple abstract modern vintage"
)


def byte_symbols() -> list[str]:
    """The 256 printable stand-ins of the byte-level alphabet, in CLIP's order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in plain]
    return [chr(b) for b in plain] + [chr(256 + i) for i in range(len(hidden))]


def learn_merges(words: Sequence[str], limit: int) -> list[tuple[str, str]]:
    """Byte-pair merges (Sennrich et al. 2016, arXiv:1508.07909): the commonest pair first, ties in alphabetical order.

    Stops at `limit` merges, or when every word is one symbol.
    """
    counts = Counter(words)
    state = {word: (*word[:-1], word[-1] + WORD_END) for word in counts}
    merges: list[tuple[str, str]] = []
    while len(merges) < limit:
        pairs = Counter[tuple[str, str]]()
        for word, parts in state.items():
            for pair in pairwise(parts):
                pairs[pair] += counts[word]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        state = {word: merged(parts, best) for word, parts in state.items()}
    return merges


def merged(parts: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """`parts` with every occurrence of the pair joined, from the left."""
    out: list[str] = []
    for part in parts:
        if out and (out[-1], part) == pair:
            out[-1] += part
        else:
            out.append(part)
    return tuple(out)


def write_tokenizer(folder: Path) -> tuple[int, int, int]:
    """Writes the four files that every version of CLIPTokenizer reads. Returns vocabulary size, start id, end id."""
    symbols = byte_symbols()
    merges = learn_merges(WORD_LIST.split(), MERGES)
    tokens = [*symbols, *(s + WORD_END for s in symbols), *("".join(m) for m in merges), START, END]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    special = {"bos_token": START, "eos_token": END, "unk_token": END, "pad_token": END}
    write_json(folder / "vocab.json", vocabulary, indent=None)
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in merges), encoding="utf-8")
    write_json(folder / "special_tokens_map.json", special)
    settings = {
        "tokenizer_class": "CLIPTokenizer",
        "model_max_length": 77,
        "do_lower_case": True,
        "add_prefix_space": False,
        "errors": "replace",
    }
    write_json(folder / "tokenizer_config.json", special | settings)
    return len(vocabulary), vocabulary[START], vocabulary[END]


def text_encoder(vocabulary: int, start: int, end: int) -> dict[str, Any]:
    """A CLIP text encoder of 64 channels and three layers."""
    return {
        "architectures": ["CLIPTextModel"],
        "attention_dropout": 0.0,
        "bos_token_id": start,
        "dropout": 0.0,
        "eos_token_id": end,
        "hidden_act": "quick_gelu",
        "hidden_size": 64,
        "initializer_factor": 1.0,
        "initializer_range": 0.02,
        "intermediate_size": 128,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 77,
        "model_type": "clip_text_model",
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "pad_token_id": end,
        "projection_dim": 64,
        "torch_dtype": "float32",
        "vocab_size": vocabulary,
    }


UNET: dict[str, Any] = {
    "_class_name": "UNet2DConditionModel",
    "act_fn": "silu",
    "attention_head_dim": 8,
    "block_out_channels": [32, 48, 64, 64],
    "center_input_sample": False,
    "cross_attention_dim": 64,
    "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
    "downsample_padding": 1,
    "flip_sin_to_cos": True,
    "freq_shift": 0,
    "in_channels": 4,
    "layers_per_block": 2,
    "mid_block_scale_factor": 1,
    "norm_eps": 1e-05,
    "norm_num_groups": 8,
    "out_channels": 4,
    "sample_size": 16,
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
}

VAE: dict[str, Any] = {
    "_class_name": "AutoencoderKL",
    "act_fn": "silu",
    "block_out_channels": [16, 32, 32, 32],
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "in_channels": 3,
    "latent_channels": 4,
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "out_channels": 3,
    "sample_size": 128,
    "scaling_factor": 2.0,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
}

SCHEDULER: dict[str, Any] = {
    "_class_name": "DDIMScheduler",
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "beta_start": 0.00085,
    "clip_sample": False,
    "num_train_timesteps": 1000,
    "prediction_type": "epsilon",
    "set_alpha_to_one": False,
    "steps_offset": 1,
    "timestep_spacing": "leading",
    "trained_betas": None,
}

INDEX: dict[str, Any] = {
    "_class_name": "StableDiffusionPipeline",
    "feature_extractor": [None, None],
    "requires_safety_checker": False,
    "safety_checker": [None, None],
    "scheduler": ["diffusers", "DDIMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}


def write_json(path: Path, value: Any, indent: int | None = 2) -> None:
    """Writes JSON with a newline at its end, making the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    """Writes the model into the folder given, or into the package."""
    here = Path(__file__).resolve().parent.parent / "src" / "mezzotint" / "assets" / "models" / "tiny-sd"
    folder = Path(arguments[0]) if arguments else here
    (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
    vocabulary, start, end = write_tokenizer(folder / "tokenizer")
    write_json(folder / "text_encoder" / "config.json", text_encoder(vocabulary, start, end))
    write_json(folder / "unet" / "config.json", UNET)
    write_json(folder / "vae" / "config.json", VAE)
    write_json(folder / "scheduler" / "scheduler_config.json", SCHEDULER)
    write_json(folder / "model_index.json", INDEX)
    print(f"{folder}: {vocabulary} tokens")


if __name__ == "__main__":
    main(sys.argv[1:])
