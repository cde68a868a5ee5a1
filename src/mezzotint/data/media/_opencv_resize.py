"""Resizing as OpenCV does it, for recipes whose pixels have to be those of programs built on it. Pillow's filters,
which `decoding.py` uses otherwise, widen when a picture shrinks (antialiasing); these do not.

The arithmetic is OpenCV's for bytes: weights of 11 bits, whole numbers throughout, so that each pixel is the same on
every machine. A pixel's middle lies at half a pixel; beyond the edge the last pixel is repeated.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mezzotint.shapes import Size

_ONE = 2048
"""A weight of 1."""

_Bytes = NDArray[np.uint8]
_Ints = NDArray[np.int64]


def resize(picture: _Bytes, size: Size, kind: str) -> _Bytes:
    """A picture (H, W, C) in another size, (size.height, size.width, C).

    kind: "nearest" takes the pixel at ⌊place · scale⌋; "bilinear" and "bicubic" (a = −0.75) weigh two and four pixels
    each way, however much the picture shrinks; "area" takes the mean of what a new pixel covers, and when a side grows
    weighs two.
    """
    height, width = picture.shape[:2]
    match kind:
        case "nearest":
            rows, columns = _corners(height, size.height), _corners(width, size.width)
            return np.ascontiguousarray(picture[rows][:, columns])
        case "bilinear":
            return _weighed_by_two(picture, _linear(height, size.height), _linear(width, size.width))
        case "bicubic":
            return _weighed_by_four(picture, _cubic(height, size.height), _cubic(width, size.width))
        case "area" if size.height <= height and size.width <= width:
            return _means(picture, size)
        case "area":
            return _weighed_by_two(picture, _growing(height, size.height), _growing(width, size.width))
        case _:
            raise AssertionError(kind)


def _corners(old: int, new: int) -> _Ints:
    return np.minimum((np.arange(new) * (old / new)).astype(np.int64), old - 1)


def _places(old: int, new: int) -> tuple[_Ints, NDArray[np.float32]]:
    """Of each new pixel the old one at or before its middle, and how far beyond that one's middle it lies."""
    place = ((np.arange(new) + 0.5) * (old / new) - 0.5).astype(np.float32)
    first = np.floor(place)
    return first.astype(np.int64), (place - first).astype(np.float32)


def _linear(old: int, new: int) -> tuple[_Ints, _Ints]:
    first, beyond = _places(old, new)
    return _pixels(first, 2, old), _weights([1 - beyond, beyond])


def _growing(old: int, new: int) -> tuple[_Ints, _Ints]:
    """Where a side grows, "area" goes over from one pixel to the next within the new pixel in which both lie."""
    scale = old / new
    first = np.floor(np.arange(new) * scale)
    beyond = ((np.arange(new) + 1) - (first + 1) / scale).astype(np.float32)
    beyond = np.where(beyond <= 0, np.float32(0), beyond - np.floor(beyond)).astype(np.float32)
    beyond = np.where(first >= old - 1, np.float32(0), beyond)
    return _pixels(np.clip(first.astype(np.int64), 0, old - 1), 2, old), _weights([1 - beyond, beyond])


def _cubic(old: int, new: int) -> tuple[_Ints, _Ints]:
    first, x = _places(old, new)
    a, one = np.float32(-0.75), np.float32(1)
    before = ((a * (x + one) - 5 * a) * (x + one) + 8 * a) * (x + one) - 4 * a
    here = ((a + 2) * x - (a + 3)) * x * x + one
    after = ((a + 2) * (one - x) - (a + 3)) * (one - x) * (one - x) + one
    return _pixels(first - 1, 4, old), _weights([before, here, after, one - before - here - after])


def _pixels(first: _Ints, count: int, old: int) -> _Ints:
    return np.asarray(np.clip(first[:, None] + np.arange(count), 0, old - 1), dtype=np.int64)


def _weights(parts: list[NDArray[np.float32]]) -> _Ints:
    """Weights (n, k) in 2048ths, halves rounded to even."""
    return np.asarray(np.rint(np.stack(parts, axis=1).astype(np.float32) * np.float32(_ONE)), dtype=np.int64)


def _across(picture: _Bytes, columns: tuple[_Ints, _Ints]) -> _Ints:
    pixels, weights = columns
    parts = (picture[:, pixels[:, k]].astype(np.int64) * weights[:, k, None] for k in range(weights.shape[1]))
    return np.asarray(sum(parts), dtype=np.int64)


def _weighed_by_two(picture: _Bytes, rows: tuple[_Ints, _Ints], columns: tuple[_Ints, _Ints]) -> _Bytes:
    across = _across(picture, columns) >> 4
    pixels, weights = rows
    first, second = ((across[pixels[:, k]] * weights[:, k, None, None]) >> 16 for k in (0, 1))
    return np.asarray(np.clip((first + second + 2) >> 2, 0, 255), dtype=np.uint8)


def _weighed_by_four(picture: _Bytes, rows: tuple[_Ints, _Ints], columns: tuple[_Ints, _Ints]) -> _Bytes:
    across = _across(picture, columns)
    pixels, weights = rows
    total = np.asarray(sum(across[pixels[:, k]] * weights[:, k, None, None] for k in range(4)))
    return np.clip(np.rint(total / (1 << 22)), 0, 255).astype(np.uint8)


def _means(picture: _Bytes, size: Size) -> _Bytes:
    height, width = picture.shape[:2]
    pixels, shares = _covered(width, size.width)
    across = np.zeros((height, size.width, picture.shape[2]), dtype=np.float32)
    for k in range(pixels.shape[1]):
        across += picture[:, pixels[:, k]] * shares[:, k, None]
    pixels, shares = _covered(height, size.height)
    both = np.zeros((size.height, *across.shape[1:]), dtype=np.float32)
    for k in range(pixels.shape[1]):
        both += across[pixels[:, k]] * shares[:, k, None, None]
    halves = (height, width) == (2 * size.height, 2 * size.width)  # there OpenCV rounds a half up, else to even
    return np.clip(np.floor(both + 0.5) if halves else np.rint(both), 0, 255).astype(np.uint8)


def _covered(old: int, new: int) -> tuple[_Ints, NDArray[np.float32]]:
    """The old pixels that each new one covers, (new, k), and the share that each has in it; unused places have none."""
    scale = old / new
    begin = np.arange(new)[:, None] * scale
    pixels = np.floor(begin).astype(np.int64) + np.arange(int(np.ceil(scale)) + 1)
    inside = np.minimum(begin + scale, pixels + 1) - np.maximum(begin, pixels)
    shares = np.where(inside > 1e-3, inside, 0.0) / np.minimum(scale, old - begin)
    return np.minimum(pixels, old - 1), shares.astype(np.float32)
