"""Sizes of images scaled to cover a bucket."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.shapes import Size, cover

side = st.integers(1, 20_000)
target_side = st.integers(1, 512).map(lambda n: 8 * n)


@given(side, side, target_side, target_side)
def test_free_side_is_scaled_and_rounded_down(width: int, height: int, to: int, by: int) -> None:
    covering = cover(Size(width, height), Size(to, by))
    wide, tall = width * by, height * to
    if wide >= tall:
        assert covering == Size(math.floor(wide / height), by)
    else:
        assert covering == Size(to, math.floor(tall / width))
    assert covering.width >= to
    assert covering.height >= by


@given(side, side, target_side, target_side)
def test_transposed_image_gives_the_transposed_size(width: int, height: int, to: int, by: int) -> None:
    upright, turned = cover(Size(width, height), Size(to, by)), cover(Size(height, width), Size(by, to))
    assert (turned.width, turned.height) == (upright.height, upright.width)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Size(181, 102), Size(113, 64)),  # 113.57: rounding would say 114
        (Size(157, 100), Size(100, 64)),  # 100.48
        (Size(49, 49), Size(64, 64)),  # 64/49 · 49 is not 64 in floating point
        (Size(64, 64), Size(64, 64)),
        (Size(1, 3000), Size(64, 192_000)),
    ],
)
def test_known_sizes(image: Size, expected: Size) -> None:
    assert cover(image, Size(64, 64)) == expected
    assert cover(image, Size(64, 64, 5)).frames == 5
