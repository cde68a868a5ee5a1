"""Small copies and their shades: none of what is no picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from mezzotint.data.catalogue import likeness, thumbnails


def test_shades_are_those_of_the_picture_and_none_of_anything_else(tmp_path: Path) -> None:
    image = Image.linear_gradient("L").convert("RGB")
    image.save(tmp_path / "a.png")
    shades = thumbnails.shades_at(tmp_path / "a.png")
    assert shades is not None
    assert np.array_equal(shades, likeness.shades_of(image))
    (tmp_path / "torn.png").write_bytes(b"\x89PNG none")
    assert thumbnails.shades_at(tmp_path / "torn.png") is None
    assert thumbnails.shades_at(tmp_path / "gone.png") is None
    assert thumbnails.shades_at(tmp_path) is None
