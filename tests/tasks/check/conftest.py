"""A folder with a recipe, images and a model to check."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from mezzotint.families.sd import Family
from support.model_export import export_model, tiny_model

SIZES = [(64, 64)] * 5 + [(128, 64)] * 3


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`Family.tiny()` as a folder of files."""
    return export_model(tiny_model(Family), tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def ready(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a recipe, images and its own model."""
    shutil.copytree(tiny_folder, tmp_path / "model")
    (tmp_path / "images").mkdir()
    for number, size in enumerate(SIZES):
        colour = (number * 30, 255 - number * 30, 90)
        Image.new("RGB", size, colour).save(tmp_path / "images" / f"{number}.png")
        (tmp_path / "images" / f"{number}.txt").write_text(f"colour {number % 6}")
    (tmp_path / "recipe.yaml").write_text(
        "model:\n  path: model\n"
        "data:\n  path: images\n  resolution: 64\n  batch_size: 2\n  workers: 0\n"
        "  buckets: {step: 16}\n  cache: {path: CACHE}\n"
        "run: {steps: 20, device: cpu}\n".replace("CACHE", str(tmp_path / "cache"))
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def quick(ready: Path, unmeasured: None) -> Path:
    """The same without measuring activations, which test_memory.py does."""
    return ready
