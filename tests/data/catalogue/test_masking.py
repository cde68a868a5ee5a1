"""Mask files are checked against their images once, when the data set is indexed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mezzotint.data.catalogue import _masking
from mezzotint.data.files.columns import TextBuilder, Texts
from mezzotint.errors import DatasetError

SIZES = np.array([[8, 4], [6, 6]])


def paths_of(*paths: Path | str) -> Texts:
    builder = TextBuilder()
    for path in paths:
        builder.append(str(path))
    return builder.texts()


def test_masks_are_identified_by_their_bytes(tmp_path: Path) -> None:
    Image.new("L", (8, 4), 255).save(tmp_path / "a.png")
    columns = _masking.probe_masks(paths_of(tmp_path / "a.png", ""), SIZES, 10_000, workers=1)
    digest = hashlib.sha256((tmp_path / "a.png").read_bytes()).digest()
    assert columns["mask_digest"].tolist() == [list(digest), [0] * 32]
    assert columns["mask"].tobytes().decode() == str(tmp_path / "a.png")
    assert _masking.probe_masks(paths_of("", ""), SIZES, 10_000, workers=1) == {}


def test_masks_of_wrong_size_or_format_are_refused(tmp_path: Path) -> None:
    Image.new("L", (4, 8)).save(tmp_path / "turned.png")
    with pytest.raises(DatasetError, match=r"1 mask of another size .*turned.png is 4×8, its image 8×4") as caught:
        _masking.probe_masks(paths_of(tmp_path / "turned.png", ""), SIZES, 10_000, workers=1)
    assert caught.value.code == "E1476"
    (tmp_path / "torn.png").write_bytes(b"\x89PNG none")
    with pytest.raises(DatasetError, match=r"mask .*remove it to train the whole image") as caught:
        _masking.probe_masks(paths_of("", tmp_path / "torn.png"), SIZES, 10_000, workers=1)
    assert caught.value.code == "E1477"
