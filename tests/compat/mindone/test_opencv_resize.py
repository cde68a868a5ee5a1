"""Resizing against records of OpenCV, on which MindONE's example is built."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from mezzotint.data.media import _opencv_resize
from mezzotint.shapes import Size

DATA = Path(__file__).parents[2] / "parity" / "data" / "mindone-sdxl"
OPENCV = load_file(DATA / "opencv_resize.safetensors")


@pytest.mark.parametrize("name", OPENCV)
def test_resized_image_is_bit_exact_with_opencv(name: str) -> None:
    kind, size = name.split(".")
    height, width = map(int, size.split("x"))
    with Image.open(DATA / "images" / "a.png") as image:
        resized = _opencv_resize.resize(np.asarray(image.convert("RGB")), Size(width, height), kind)
    assert np.array_equal(resized, OPENCV[name])
