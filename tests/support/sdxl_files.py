"""A tiny SDXL and a tiny refiner as folders and single files, and checks of their layouts."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mezzotint.cli import main
from mezzotint.weights.folder import components
from mezzotint.weights.folder.export import Replaced, write_model
from mezzotint.weights.folder.model_folder import open_folder, shipped_folder
from mezzotint.weights.keymap import KeyMap
from mezzotint.weights.layouts import sdxl
from mezzotint.weights.single_file.single_file import SingleFile, open_single
from support.layout_names import LAYOUTS, header_of, shapes_of, table_of

SCALES = {
    "sdxl": "conditioner.embedders.1.model.logit_scale", "sdxl-refiner": "conditioner.embedders.0.model.logit_scale",
}  # fmt: skip
"""A tensor of OpenCLIP's that published files have and no model uses."""

COUNTS = {
    ("sdxl", "unet"): (1680, 1680, 2_567_463_684),
    ("sdxl", "vae"): (248, 248, 83_653_863),
    ("sdxl", "text_encoder"): (196, 196, 123_060_480),
    ("sdxl", "text_encoder_2"): (517, 389, 694_659_840),
    ("sdxl-refiner", "unet"): (1220, 1220, 2_259_526_660),
    ("sdxl-refiner", "vae"): (248, 248, 83_653_863),
    ("sdxl-refiner", "text_encoder_2"): (517, 389, 694_659_840),
}
"""Tensors of ours, tensors in a single file, numbers: as the published models have them."""

SMALL: dict[str, dict[str, Any]] = {
    "unet": {
        "block_out_channels": [32, 64], "layers_per_block": 1, "cross_attention_dim": 64,
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"], "transformer_layers_per_block": [1, 2],
        "attention_head_dim": [2, 4], "addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 80,
    },
    "vae": {
        "block_out_channels": [32, 64], "layers_per_block": 1, "down_block_types": ["DownEncoderBlock2D"] * 2,
        "up_block_types": ["UpDecoderBlock2D"] * 2,
    },
    "text_encoder": {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
        "vocab_size": 1000, "projection_dim": 32,
    },
    "text_encoder_2": {
        "hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2,
        "vocab_size": 1000, "projection_dim": 32,
    },
}  # fmt: skip
"""The sizes of the recorded model, as changes of the shipped configurations."""


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Configurations of a small SDXL and a small refiner."""
    root = tmp_path_factory.mktemp("configs")
    for model in LAYOUTS:
        shutil.copytree(shipped_folder(model), root / model)
        for component, change in SMALL.items():
            path = root / model / component / "config.json"
            if path.is_file():
                refiner = {"cross_attention_dim": 32, "projection_class_embeddings_input_dim": 72}
                changed = change | (refiner if (model, component) == ("sdxl-refiner", "unet") else {})
                path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    return {model: root / model for model in LAYOUTS}


@pytest.fixture(scope="module")
def folders(configs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small SDXL and a small refiner with random weights, in diffusers' folders."""
    root = tmp_path_factory.mktemp("folders")
    for model, layout in LAYOUTS.items():
        source, replaced = open_folder(configs[model]), {}
        for component, network in layout.networks.items():
            config = source.config(component)
            drawn = components.random_network(network, config, 3, component, where=source.root)
            replaced[component] = Replaced(network, drawn.state_dict(), config)
        scheduler = source.config("scheduler", "scheduler_config.json")
        write_model(root / model, source, replaced, scheduler=scheduler, dtype="fp32")
    return {model: root / model for model in LAYOUTS}


@pytest.fixture(scope="module")
def singles(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same in single files under Stability's names, with what such files have besides."""
    root = tmp_path_factory.mktemp("singles")
    for model, folder in folders.items():
        assert convert(folder, root / "plain.safetensors") == 0
        tensors = load_file(root / "plain.safetensors")
        (root / "plain.safetensors").unlink()
        scale = SCALES[model]
        assert scale not in tensors
        tensors[scale] = torch.tensor(4.6)
        save_file(tensors, root / f"{model}.safetensors", {"modelspec.author": "someone"})
    return {model: root / f"{model}.safetensors" for model in LAYOUTS}


def folder_tensors(folder: Path) -> dict[str, Tensor]:
    return {
        f"{path.parent.name}/{n}": t
        for path in sorted(folder.glob("*/*model.safetensors"))
        for n, t in load_file(path).items()
    }


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(t.dtype == b[n].dtype and t.equal(b[n]) for n, t in a.items())


def convert(*words: object) -> int:
    return main(["convert", *map(str, words)])


def opened(path: Path, config: Path | None = None, **more: Any) -> SingleFile:
    return open_single(path, None, config=config, **more)


def names_of(model: str, layout: KeyMap) -> list[str]:
    """All names of a file of the full-size model, with what its readers ask for besides."""
    names = [entry.foreign for component in layout.parts for entry in table_of(model, component, layout).entries]
    return [*names, SCALES[model]]


def require_every_tensor(model: str, component: str, layout: KeyMap) -> None:
    """Every tensor of a full-size model has its place, both ways."""
    shapes, table = shapes_of(model, component, layout), table_of(model, component, layout)
    ours, foreign, numbers = COUNTS[model, component]
    assert len(shapes) == ours
    assert len(table.entries) == len({entry.foreign for entry in table.entries}) == foreign
    assert sum(math.prod(shape) for shape in shapes.values()) == numbers
    assert sorted(name for entry in table.entries for name in entry.ours) == sorted(shapes)
    for entry in table.entries:
        told = entry.foreign_shape(shapes)
        assert entry.shapes(told) == {name: shapes[name] for name in entry.ours}
        assert table.find_foreign(entry.foreign) is entry
        assert all(table.find_ours(name) is entry for name in entry.ours)


def require_shipped_configurations(model: str, layout: KeyMap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header of a full-size file is enough to choose the shipped configurations; nobody has its values."""
    header = header_of(model, layout)
    (tmp_path / "x.ckpt").write_bytes(b"")
    monkeypatch.setattr("mezzotint.weights.files.tensor_files.read_header", lambda path: header)
    monkeypatch.setattr("mezzotint.weights.files.tensor_files.read_metadata", lambda path: {})
    single = open_single(tmp_path / "x.ckpt", sdxl.LAYOUT)
    assert single.folder.root == shipped_folder(model)
    assert single.layout is layout
    for component in single.layout.parts:
        assert {n: i.shape for n, i in single.component(component).header().items()} == shapes_of(
            model, component, single.layout
        )
    assert single.unmapped == type(single.unmapped)((), (), ())


def require_averages(path: Path, averaged: dict[str, Tensor], plain: Tensor, config: Path) -> None:
    """Averaged weights of a file are used when they are asked for. plain: the bias `conv_in` of the weights beside."""
    single = opened(path, config, averaged=True)
    read = single.component("unet").read(["conv_in.bias"])["conv_in.bias"]
    assert read.equal(plain + 1)
    assert len(single.unmapped.averages) == len(averaged)
    assert not single.unmapped.unknown
