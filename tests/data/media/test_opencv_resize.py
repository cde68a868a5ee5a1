"""Resizing like OpenCV: properties for any image. Pixels are compared with OpenCV in tests/parity."""

from __future__ import annotations

import sys

import cv2
import numpy as np
import pytest
from PIL import Image

from mezzotint.data.media import _opencv_resize, decoding
from mezzotint.data.media.decoding import place_image
from mezzotint.shapes import Size
from mezzotint.stages import Placement
from support.messages import refused

KINDS = ["nearest", "bilinear", "bicubic", "area"]
IMAGE = np.random.default_rng(3).integers(0, 256, (24, 36, 3), dtype=np.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_plain_colour_and_equal_size_are_unchanged(kind: str) -> None:
    plain = np.full((24, 36, 3), 97, np.uint8)
    for size in (Size(36, 24), Size(50, 11), Size(7, 40)):
        resized = _opencv_resize.resize(plain, size, kind)
        assert (resized.shape, resized.dtype) == ((size.height, size.width, 3), np.uint8)
        assert (resized == 97).all()
    assert (_opencv_resize.resize(IMAGE, Size(36, 24), kind) == IMAGE).all()


def test_half_size_is_a_corner_or_a_mean() -> None:
    half = Size(18, 12)
    assert (_opencv_resize.resize(IMAGE, half, "nearest") == IMAGE[::2, ::2]).all()
    means = IMAGE.reshape(12, 2, 18, 2, 3).astype(int).sum(axis=(1, 3))
    assert (_opencv_resize.resize(IMAGE, half, "area") == (means + 2) // 4).all()
    # without antialiasing each new pixel is the mean of the four around its centre
    assert np.abs(_opencv_resize.resize(IMAGE, half, "bilinear").astype(int) - means / 4).max() <= 1


@pytest.mark.parametrize("kind", ["bilinear", "bicubic"])
def test_antialias_off_uses_opencv_pixels(kind: str) -> None:
    placement = Placement(Size(9, 6), Size(9, 6), (0, 0))
    plain = place_image(Image.fromarray(IMAGE), placement, resize=kind, antialias=False)
    assert (plain == _opencv_resize.resize(IMAGE, Size(9, 6), kind).transpose(2, 0, 1)).all()
    assert (plain != place_image(Image.fromarray(IMAGE), placement, resize=kind)).any()


def test_ipp_is_not_used_and_its_setting_is_restored() -> None:
    size = Size(23, 17)
    with_ipp = cv2.ipp.useIPP()
    resized = _opencv_resize.resize(IMAGE, size, "bicubic")
    assert cv2.ipp.useIPP() == with_ipp
    cv2.ipp.setUseIPP(False)
    try:
        assert (resized == cv2.resize(IMAGE, (23, 17), interpolation=cv2.INTER_CUBIC)).all()
    finally:
        cv2.ipp.setUseIPP(with_ipp)


def test_missing_opencv_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    decoding.require_packages(resize="lanczos", antialias=True)
    for resize, antialias in (("area", True), ("nearest", False)):
        with refused("E1293", r"pip install 'mezzotint\[opencv\]'"):
            decoding.require_packages(resize=resize, antialias=antialias)
