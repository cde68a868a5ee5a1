"""The sizes of `data.buckets.shape=own`: every image in its own size, or reduced to about resolution² pixels. Between
the catalogue and the plan; the placement of an image uses the same rule.

`tools/bucket_formulas.py` has the published formulas. They divide by zero for an image that is reduced to less than one
step on a side; here the other of the two candidates is then used, and an image without a candidate has no bucket.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.settings.sections.buckets import count_own_heights
from mezzotint.shapes import Size


@dataclass(frozen=True, slots=True)
class Fitted:
    """The size that an image is resized to, never larger than the image, and the bucket that it is then cropped to."""

    resized: Size
    bucket: Size


def fit(image: Size, resolution: int, step: int) -> Fitted | None:
    """The size and bucket of an image: its own size if that has at most resolution² pixels; both sides of the bucket
    are rounded down to multiples of `step`. None if a side is then 0."""
    resized = _reduce(image, resolution**2, step) if image.pixels > resolution**2 else image
    bucket = Size(resized.width // step * step, resized.height // step * step)
    return Fitted(resized, bucket) if bucket.pixels else None


def find_resized_size(image: Size, bucket: Size, resolutions: Sequence[int], step: int) -> Size:
    """The size that an image in this bucket is resized to. resolutions: base sizes of its set; if several give the same
    bucket, the first one counts."""
    for resolution in resolutions:
        fitted = fit(image, resolution, step)
        if fitted is not None and fitted.bucket == bucket:
            return fitted.resized
    raise AssertionError(f"an image of {image} is not in the bucket {bucket}")


def list_sizes(resolution: int, step: int) -> tuple[Size, ...]:
    """The buckets that images may have, by width, then height."""
    return tuple(
        Size(step * width, step * height)
        for width, heights in enumerate(count_own_heights(resolution, step), start=1)
        for height in range(1, heights + 1)
    )


def find_buckets(widths: NDArray[Any], heights: NDArray[Any], resolution: int, step: int) -> NDArray[np.int64]:
    """The index in `list_sizes` of the bucket of each image; −1 for an image without one. widths, heights: (n,) pixels,
    above 0. Each distinct size is computed once."""
    first = np.cumsum([0, *count_own_heights(resolution, step)]).tolist()
    distinct, inverse = np.unique(widths.astype(np.int64) << 32 | heights.astype(np.int64), return_inverse=True)
    indexes = np.full(len(distinct), -1, np.int64)
    for number, packed in enumerate(distinct.tolist()):
        fitted = fit(Size(packed >> 32, packed & 0xFFFFFFFF), resolution, step)
        if fitted is not None:
            indexes[number] = first[fitted.bucket.width // step - 1] + fitted.bucket.height // step - 1
    return indexes[inverse]


def _reduce(image: Size, area: int, step: int) -> Size:
    """The size of about `area` pixels with one side a multiple of `step`: of the two such sizes, the one whose bucket
    is nearer to the image in width / height; of equally near ones, the one whose height is the multiple."""
    aspect = image.aspect
    width = math.sqrt(area * aspect)
    height = area / width
    wide, high = _round_down(width, step), _round_down(height, step)
    height_of_wide, width_of_high = _round_down(wide / aspect, step), _round_down(high * aspect, step)
    error_of_wide = abs(wide / height_of_wide - aspect) if height_of_wide else math.inf
    error_of_high = abs(width_of_high / high - aspect) if high else math.inf
    if error_of_wide < error_of_high:
        return Size(wide, _round(wide / aspect))
    return Size(_round(high * aspect), high)


def _round(length: float) -> int:
    return int(length + 0.5)


def _round_down(length: float, step: int) -> int:
    """Whole pixels, then down to a multiple of `step`."""
    return _round(length) // step * step
