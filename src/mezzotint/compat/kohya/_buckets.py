"""Sizes of images: one size, or the buckets of kohya's scripts."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from mezzotint.compat.kit.derived import bucket_step
from mezzotint.settings.sections.buckets import BucketSettings, has_too_many_sizes

_CELL = 8
"""Sides in pixels are multiples of it."""
_WIDEST = 4.0
"""The largest aspect ratio of the sizes of `data.buckets.shape=table`."""


def parse_resolution(text: str) -> tuple[int, int]:
    """Width and height of a side or of `width,height`. Raises ValueError."""
    parts = text.replace("x", ",").split(",") if text.count("x") == 1 else text.split(",")
    if not 1 <= len(parts) <= 2 or not all(part.strip().isdecimal() for part in parts):
        raise ValueError(f"must be a side, or width,height, got {text}")
    width, height = (int(part) for part in (parts * 2)[:2])
    if min(width, height) < 64 or max(width, height) > 4096:
        raise ValueError(f"must be 64 to 4096, got {text}")
    return width, height


def settings_of_sizes(
    width: int, height: int, *, buckets: bool, least: int, most: int, step: int, enlarges: bool = True
) -> dict[str, Any]:
    """The settings of sizes, by path below `data`. buckets: whether images are grouped by aspect ratio. least, most,
    step: of the buckets' sides. enlarges: whether small images are enlarged to their bucket. Raises ValueError."""
    side = max(_CELL, round(math.sqrt(width * height) / _CELL) * _CELL)
    if not buckets:
        if width % _CELL or height % _CELL:
            raise ValueError(f"must be multiples of {_CELL}, got {width},{height}")
        if width == height:
            return {"resolution": side, "buckets.shape": "square", "buckets.step": bucket_step(side)}
        return {"resolution": side, "buckets.shape": "list", "buckets.sizes": [[height, width]]}
    if step % _CELL:
        raise ValueError(f"bucket_reso_steps must be a multiple of {_CELL}, got {step}")
    if not enlarges:
        if has_too_many_sizes(side, step):
            raise ValueError(f"bucket_no_upscale with bucket_reso_steps {step} has too many sizes; write 64")
        return {"resolution": side, "buckets.shape": "own", "buckets.step": step}
    least, most = least - least % step, most + -most % step
    if min(width, height) < least:
        raise ValueError(f"{width},{height} has a side below min_bucket_reso, {least}")
    if max(width, height) > most:
        raise ValueError(f"{width},{height} has a side above max_bucket_reso, {most}")
    if width == height == side:
        sides = {"buckets.min_side": max(least, step), "buckets.max_side": most}
        return {"resolution": side, "buckets.shape": "range", "buckets.step": step, **sides}
    sizes = bucket_sizes(width, height, least=least, most=most, step=step)
    return {"resolution": side, "buckets.shape": "list", "buckets.sizes": [[high, wide] for wide, high in sizes]}


def bucket_sizes(width: int, height: int, *, least: int, most: int, step: int) -> list[tuple[int, int]]:
    """Widths and heights of the buckets of a rectangle: for each width the greatest height whose area is at most that
    of the resolution, both as multiples of `step` from `least` to `most`, each size also turned, and the square."""
    area = width * height
    square = math.isqrt(area) // step * step
    sizes = {(square, square)}
    for wide in range(max(least, step), most + 1, step):
        high = min(most, area // wide // step * step)
        if high >= max(least, step):
            sizes |= {(wide, high), (high, wide)}
    return sorted(sizes)


def write_sizes(side: int, buckets: BucketSettings) -> dict[str, Any]:
    """The options of sizes, or the most similar ones."""
    of_list: dict[str, Any] = {}
    square, sizes = {"resolution": str(side)}, [(wide, high) for high, wide in buckets.sizes or ()]
    in_buckets = {**square, "enable_bucket": True, "bucket_reso_steps": buckets.step}
    match buckets.shape:
        case "square":
            return {**square}
        case "own":
            return {**in_buckets, "bucket_no_upscale": True}
        case "range":
            return {**in_buckets, "min_bucket_reso": buckets.min_side, "max_bucket_reso": buckets.max_side}
        case "list":
            of_list = _find_options(sizes, side)
            ratio = max(max(one) / min(one) for one in sizes)
        case _:
            ratio = buckets.max_aspect if buckets.shape == "aspect" else _WIDEST
    least = max(1, math.floor(side / math.sqrt(ratio) / buckets.step)) * buckets.step
    most = math.ceil(side * math.sqrt(ratio) / buckets.step) * buckets.step
    return of_list or {**in_buckets, "min_bucket_reso": least, "max_bucket_reso": most}


def _find_options(sizes: Collection[tuple[int, int]], side: int) -> dict[str, Any]:
    """The options whose buckets have these widths and heights; none if there are no such options. side: of the square
    of their area (`settings_of_sizes`)."""
    least, most = min(map(min, sizes)), max(map(max, sizes))
    step = math.gcd(*(one for size in sizes for one in size))
    sides = {"min_bucket_reso": least, "max_bucket_reso": most, "bucket_reso_steps": step}
    for width, height in sizes:
        size = {"resolution": f"{width},{height}"}
        if round(math.sqrt(width * height) / _CELL) * _CELL != side:
            continue
        if len(sizes) == 1:
            return size
        if set(bucket_sizes(width, height, least=least, most=most, step=step)) == set(sizes):
            return {**size, "enable_bucket": True, **sides}
    return {}
