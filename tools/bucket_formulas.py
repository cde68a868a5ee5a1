"""Bucket sizes by the formulas of sd-scripts (kohya-ss), one image at a time and without Mezzotint. A test compares
them with `data.buckets.shape=range` and `own`.

The formulas are those of `make_bucket_resolutions` in library/model_util.py and of `BucketManager.select_bucket` in
library/train_util.py.

    python tools/bucket_formulas.py RESOLUTION STEP WIDTH HEIGHT
"""

from __future__ import annotations

import math
import sys

Pair = tuple[int, int]


def list_sizes(resolution: int, step: int, min_side: int, max_side: int) -> list[Pair]:
    """`enable_bucket`: all sizes as (width, height), sorted."""
    area = resolution * resolution
    square = step * (resolution // step)
    sizes = [(square, square)]
    width = min_side
    while width <= max_side:
        height = step * (area // width // step)
        if height > max_side:
            height = max_side
        if height >= min_side:
            sizes.append((width, height))
            sizes.append((height, width))
        width = width + step
    return sorted(set(sizes))


def choose_size(width: int, height: int, sizes: list[Pair]) -> Pair:
    """`enable_bucket`: the size of an image."""
    if (width, height) in sizes:
        return width, height
    best, smallest = sizes[0], float("inf")
    for size in sizes:
        error = abs(size[0] / size[1] - width / height)
        if error < smallest:
            best, smallest = size, error
    return best


def fit_own(width: int, height: int, resolution: int, step: int) -> tuple[Pair, Pair]:
    """`bucket_no_upscale`: the size that an image is resized to, and its bucket. Raises ZeroDivisionError for an image
    that is reduced to less than one step on a side."""
    resized = (width, height)
    if width * height > resolution * resolution:
        aspect = width / height
        ideal_width = math.sqrt(resolution * resolution * aspect)
        ideal_height = resolution * resolution / ideal_width
        # candidate 1: the width is a multiple of the step
        width_1 = floor_to(ideal_width, step)
        height_1 = floor_to(width_1 / aspect, step)
        error_1 = abs(width_1 / height_1 - aspect)
        # candidate 2: the height is a multiple of the step
        height_2 = floor_to(ideal_height, step)
        width_2 = floor_to(height_2 * aspect, step)
        error_2 = abs(width_2 / height_2 - aspect)
        if error_1 < error_2:
            resized = (width_1, half_up(width_1 / aspect))
        else:
            resized = (half_up(height_2 * aspect), height_2)
    return resized, (resized[0] - resized[0] % step, resized[1] - resized[1] % step)


def half_up(number: float) -> int:
    """The nearest whole number."""
    return int(number + 0.5)


def floor_to(number: float, step: int) -> int:
    """The nearest whole number, then the multiple of the step at or below it."""
    whole = half_up(number)
    return whole - whole % step


if __name__ == "__main__":
    resolution, step, width, height = map(int, sys.argv[1:])
    sizes = list_sizes(resolution, step, min(256, resolution), max(1024, resolution))
    print("range:", choose_size(width, height, sizes))
    print("own: resized to {}, cropped to {}".format(*fit_own(width, height, resolution, step)))
