"""Models as single files, written once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mezzotint.cli import main
from mezzotint.weights.folder import components
from support.sd_folder import FOLDER


def convert(*words: object) -> None:
    assert main(["convert", *map(str, words)]) == 0


@pytest.fixture(scope="session")
def sd1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small SD 1.x as a single file."""
    path = tmp_path_factory.mktemp("sd1") / "sd1.safetensors"
    convert(FOLDER, path)
    return path


@pytest.fixture(scope="session")
def sd2(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A small SD 2.x as a folder and a single file."""
    root = tmp_path_factory.mktemp("sd2")
    folder = shutil.copytree(FOLDER, root / "folder")
    for name, changes in {
        "unet": {"use_linear_projection": True, "attention_head_dim": [2, 4, 4, 4]},
        "text_encoder": {"hidden_act": "gelu"},
    }.items():
        path = folder / name / "config.json"
        config = json.loads(path.read_text()) | changes
        network: components.Network = "unet" if name == "unet" else "clip_text"
        module = components.random_network(network, config, 5, name, where=path)
        components.write(network, module.state_dict(), config, folder / name, "fp32")
    convert(folder, root / "sd2.safetensors")
    return folder, root / "sd2.safetensors"
