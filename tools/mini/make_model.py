"""The folders of mezzotint-mini: what its training begins with, and what ships.

    python tools/mini/make_model.py start VAE_FOLDER FOLDER
    python tools/mini/make_model.py ship EXPORT_FOLDER FIGURES.json FOLDER

`start` writes a complete model folder: the tokenizer, a text encoder and a UNet with random weights drawn from a seed,
the trained VAE rounded to the half precision in which it ships, so that the latents of the training are those of the
shipped model. `ship` takes the folder that the training has exported, rounds it to half precision and writes its model
card from the figures that `measure.py` has written.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mezzotint.weights.files import tensor_files
from mezzotint.weights.folder import components
from mezzotint.weights.folder.model_folder import write_json

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from make_tiny_sd_assets import INDEX
from make_tiny_sd_assets import SCHEDULER as DDIM
from make_tiny_sd_assets import UNET as OF_TINY
from make_tiny_sd_assets import text_encoder as of_tiny
from mini.card import card
from mini.make_tokenizer import LENGTH, write_tokenizer

SEED = 1
"""Of the random weights."""

LARGEST = 8_000_000
"""Bytes of all weights together that may ship."""

WIDTH = 128  # of a text embedding

UNET: dict[str, Any] = OF_TINY | {
    "attention_head_dim": 4,
    "block_out_channels": [64, 96],
    "cross_attention_dim": WIDTH,
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
    "layers_per_block": 1,
    "sample_size": 8,
    "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
}
"""Two levels, 8×8 and 4×4 latents for an image of 64×64 pixels. attention_head_dim is the number of heads, as in every
UNet of Stable Diffusion 1."""

SCHEDULER: dict[str, Any] = DDIM | {"prediction_type": "v_prediction"}

_NETWORKS: dict[str, components.Network] = {"unet": "unet", "text_encoder": "clip_text", "vae": "vae"}


def text_encoder(vocabulary: Mapping[str, int]) -> dict[str, Any]:
    """A CLIP text encoder of two layers. The last two tokens of the vocabulary are start and end."""
    start, end = len(vocabulary) - 2, len(vocabulary) - 1
    wide = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "projection_dim": WIDTH}
    return of_tiny(len(vocabulary), start, end) | wide | {"max_position_embeddings": LENGTH, "num_hidden_layers": 2}


def start(vae: Path, folder: Path, seed: int = SEED) -> None:
    """Writes the folder that the training begins with. vae: a folder with the trained autoencoder."""
    vocabulary = write_tokenizer(folder / "tokenizer")
    networks = {"text_encoder": text_encoder(vocabulary), "unet": UNET}
    for component, config in networks.items():
        network = _NETWORKS[component]
        module = components.random_network(network, config, seed, component, where=folder / component / "config.json")
        components.write(network, module.state_dict(), config, folder / component, "fp32")
    _write_halved("vae", vae, folder / "vae")
    write_json(folder / "scheduler" / "scheduler_config.json", SCHEDULER)
    write_json(folder / "model_index.json", INDEX)


def ship(export: Path, figures: Path, folder: Path) -> int:
    """Writes the folder that ships, with its card. Returns the bytes of its weights."""
    for component in _NETWORKS:
        _write_halved(component, export / component, folder / component)
    for component in ("tokenizer", "scheduler"):
        shutil.copytree(export / component, folder / component, dirs_exist_ok=True)
    shutil.copyfile(export / "model_index.json", folder / "model_index.json")
    numbers = json.loads(figures.read_text("utf-8"))
    (folder / "README.md").write_text(card(numbers, _parameters(folder)), encoding="utf-8")
    size = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    assert size <= LARGEST, f"{size} bytes of weights, of which {LARGEST} may ship"
    return size


def _write_halved(component: str, source: Path, target: Path) -> None:
    """A component's folder with its weights in half precision."""
    network = _NETWORKS[component]
    config = json.loads((source / "config.json").read_text("utf-8"))
    plain = {key: value for key, value in config.items() if key not in ("_diffusers_version", "transformers_version")}
    components.write(network, tensor_files.read(source / components.file_name(network)), plain, target, "fp16")


def _parameters(folder: Path) -> dict[str, int]:
    """How many numbers each component has."""
    counts = {}
    for component, network in _NETWORKS.items():
        header = tensor_files.InFile(folder / component / components.file_name(network)).header()
        counts[component] = sum(_product(info.shape) for info in header.values())
    return counts


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for side in shape:
        product *= side
    return product


def main() -> None:
    parser = argparse.ArgumentParser(prog="make_model.py")
    verbs = parser.add_subparsers(dest="verb", required=True)
    begin = verbs.add_parser("start")
    begin.add_argument("vae", type=Path)
    begin.add_argument("folder", type=Path)
    begin.add_argument("--seed", type=int, default=SEED)
    end = verbs.add_parser("ship")
    end.add_argument("export", type=Path)
    end.add_argument("figures", type=Path)
    end.add_argument("folder", type=Path)
    options = parser.parse_args()
    if options.verb == "start":
        start(options.vae, options.folder, options.seed)
    else:
        print(f"{ship(options.export, options.figures, options.folder)} bytes of weights in {options.folder}")


if __name__ == "__main__":
    main()
