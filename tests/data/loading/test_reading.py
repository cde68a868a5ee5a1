"""Pictures that cannot be read any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from loaded import data, steps
from PIL import Image
from refusals import refused

from mezzotint.data.catalogue import catalogue as catalogues


@pytest.mark.parametrize("workers", [0, 1])
def test_a_picture_that_vanishes_is_named(tmp_path: Path, workers: int) -> None:
    Image.new("RGB", (32, 32)).save(tmp_path / "a b.png")
    (tmp_path / "a b.txt").write_text("x")
    settings = data(tmp_path, workers=workers)
    catalogue = catalogues.build(settings, tmp_path / ".index", workers=1)
    (tmp_path / "a b.png").unlink()
    with refused("E1250", r"sample 'a b\.png' could be read .*a b\.png"):
        steps(catalogue, settings, 0, 2)


def test_a_believed_picture_that_changes_is_no_damaged_one(tmp_path: Path) -> None:
    Image.new("RGB", (32, 32)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("x")
    settings = data(tmp_path, workers=0, verify="use")
    catalogue = catalogues.build(settings, tmp_path / ".index", workers=1)
    (tmp_path / "a.png").write_bytes(b"no picture")
    with refused("E1250", "not a picture of a known format"):
        steps(catalogue, settings, 0, 2)
