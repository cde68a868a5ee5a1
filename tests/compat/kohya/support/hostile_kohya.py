# ruff: noqa: E501 (an entry a line)
"""Hostile metadata, data set, prompt and GUI files of sd-scripts: entries of the corpus of `tests/faults`, their doors and readers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foreign_lines import ALONE

from mezzotint.compat.kohya.dialect import DIALECT
from support.hostile.data_sets import IMAGE, entry
from support.hostile.doors import data
from support.hostile.entry import Entry, all_of, file
from support.hostile.readers import IMAGE as SMALL_IMAGE
from support.hostile.readers import Reader, both, listed

LINE = (
    "--script=train_network", "--network_module=networks.lora", "--pretrained_model_name_or_path=base",
    "--output_dir=out",
)  # fmt: skip


def _metadata(id_: str, fault: str, content: Any, expected: str = "E2", **more: Any) -> Entry:
    text = content if isinstance(content, (str, bytes)) else json.dumps(content)
    names = more.pop("names", "meta.json")
    code = more.pop("code", "E1217" if expected == "E2" else "")
    return entry(
        "kohya-metadata", id_, fault, all_of(IMAGE, file("meta.json", text)), expected, code=code, names=names, **more
    )


ENTRIES = (
    _metadata("deep", "nested 100,000 deep", "[" * 100_000, is_quick=True),
    _metadata("list", "a list", [{"caption": "a"}]),
    _metadata("number", "an image that is a number", {"a": 3}),
    _metadata("digits", "a number of 5,000 digits", '{"a": {"caption": ' + "9" * 5000 + "}}"),
    _metadata("latin-1", "ISO-8859-1", '{"caf\xe9": {}}'.encode("latin-1")),
    _metadata("types", "captions of other types", {"a": {"caption": [3]}}, code="E1202", names="a"),
    _metadata("absent", "images that are not there", {"a": {"caption": "fox"}, "x" * 300: {}, "b\0": {}, "/etc/passwd": {}}, "S", names="x" * 50, is_quick=True),
)  # fmt: skip


def _with_metadata(folder: Path, work: Path) -> Any:
    return data(format="kohya-subsets", kohya_subsets={"metadata_file": folder / "meta.json"})(folder, work)


DOORS = {"kohya-metadata": _with_metadata}


def _translated(*words: str) -> Callable[[Path], object]:
    """Translates a command whose words may name the folder as {}."""
    return lambda folder: DIALECT.translate([word.format(folder) for word in words], ALONE)


def _from_metadata(folder: Path) -> object:
    return listed("kohya-subsets", kohya_subsets={"metadata_file": folder / "meta.json"})(folder)


_SETS = "[general]\nflip_aug = true\n[[datasets]]\nresolution = 512\n[[datasets.subsets]]\nimage_dir = 'a'\nnum_repeats = 2\n"
_GUI = {
    "LoRA_type": "Standard",
    "pretrained_model_name_or_path": "m",
    "train_data_dir": "a",
    "max_resolution": "512,512",
    "output_dir": "o",
    "epoch": 2,
    "network_dim": "8",
    "optimizer_args": "weight_decay=0.1",
}
_PROMPTS = ("--train_data_dir=a", "--resolution=512", "--sample_every_n_steps=5")

READERS = {
    "kohya-metadata": Reader(both(SMALL_IMAGE, file("meta.json", '{"a": {"caption": "a fox", "tags": "red, big"}}')), ("meta.json",), _from_metadata),
    "kohya-sets": Reader(file("data.toml", _SETS), ("data.toml",), _translated(*LINE, "--dataset_config={}/data.toml")),
    "kohya-gui": Reader(file("gui.json", json.dumps(_GUI)), ("gui.json",), _translated("{}/gui.json")),
    "kohya-prompts": Reader(file("p.txt", "a fox --w 512 --h 768 --d 1 --n bad\n"), ("p.txt",), _translated(*LINE, *_PROMPTS, "--sample_prompts={}/p.txt")),
    "kohya-prompts-toml": Reader(file("p.toml", "[prompt]\nwidth = 512\n[[prompt.subset]]\nprompt = 'a'\n"), ("p.toml",), _translated(*LINE, *_PROMPTS, "--sample_prompts={}/p.toml")),
}  # fmt: skip
