"""`mezzotint.sample` gives the images that the command writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mezzotint as mz
from mezzotint.cli import main


def test_images_equal_those_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("sample.steps=2", "run.device=cpu")
    images = mz.sample("mezzotint-mini", ["a star", "a moon"], *words, seed=[1, 2], size=(64, 48))
    assert main(["sample", "mezzotint-mini", "--prompt=a star", "--prompt=a moon", "--seed=1,2", "--size=64x48",
                 "--out=out", *words]) == 0  # fmt: skip
    files = sorted(path for path in Path("out").glob("*.png") if not path.name.startswith("contact"))
    assert len(images) == len(files) == 4
    for image, file in zip(images, files, strict=True):
        assert np.array_equal(np.asarray(image), np.asarray(Image.open(file)))
    assert [(one.info["mezzotint"]["prompt"], one.info["mezzotint"]["seed"]) for one in images] == [
        ("a star", "1"), ("a star", "2"), ("a moon", "1"), ("a moon", "2")]  # fmt: skip
