"""Bucket sizes, and the assignment of images to them. Between the catalogue and the plan.

A batch contains images of one size, so each image is assigned to the bucket with the nearest aspect ratio. The distance
is measured in log(width / height), or, for the sizes of a hand-made table and of a range of sides, in width / height.
With `shape=own` an image has the bucket of its own size (`own_sizes.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mezzotint.data.buckets import clip_buckets, own_sizes
from mezzotint.errors import RecipeError
from mezzotint.settings.sections.buckets import MOST_SIZES
from mezzotint.settings.sections.data import BucketSettings, DataSettings
from mezzotint.shapes import Size

_CHUNK = 1 << 15
_MARGIN = 1.02


@dataclass(frozen=True, slots=True)
class Placed:
    """Samples in their buckets: once, or with `resolution_mode: each` or `random` once for each base size of their set.
    sample: (m,) int64, ascending, index of the sample. bucket: (m,) int16, index in `table`. choice: (m,) int16, number
    of the base size among those of the set. choices: (m,) int16, how many these are."""

    sample: NDArray[np.int64]
    bucket: NDArray[np.int16]
    choice: NDArray[np.int16]
    choices: NDArray[np.int16]

    @property
    def is_one_each(self) -> bool:
        """Whether every sample has one bucket."""
        return bool((self.choices == 1).all())


def table(settings: DataSettings) -> tuple[Size, ...]:
    """The buckets of a recipe, each once: sizes of images (`shapes`) of all sets in all base sizes, of clips with their
    frames (`clip_buckets.table`). Raises RecipeError E1003 if sets of images in their own sizes have too many."""
    if settings.has_clips and settings.clips.buckets:
        return clip_buckets.table(settings.clips, ())
    sizes = tuple(dict.fromkeys(size for one in settings.image_sets() for of in one.sizes for size in _sizes_of(of)))
    if len(sizes) > MOST_SIZES:
        raise RecipeError(
            f"data.sets have {len(sizes):,} sizes, more than {MOST_SIZES:,}; set data.buckets.step to one larger step "
            "for all sets",
            code="E1003",
        )
    return sizes


def _sizes_of(settings: DataSettings) -> tuple[Size, ...]:
    """The buckets of one set in one base size."""
    return clip_buckets.table(settings.clips, shapes(settings)) if settings.has_clips else shapes(settings)


def count_frames(
    frames: NDArray[np.int32], rate: NDArray[np.float64], start: NDArray[np.int32], sets: ArrayLike,
    settings: DataSettings,
) -> NDArray[np.int32]:  # fmt: skip
    """The number of frames of a sample of each clip by the settings of its set, see `clip_buckets.most_frames`.
    sets: as in `place`."""
    most, of_set = np.zeros(len(frames), np.int32), np.asarray(sets)
    for number, one in enumerate(settings.image_sets()):
        rows = np.flatnonzero(of_set == number)
        most[rows] = clip_buckets.most_frames(frames[rows], rate[rows], start[rows], one.settings.clips)
    return most


def place(
    widths: ArrayLike, heights: ArrayLike, sets: ArrayLike, settings: DataSettings,
    most: NDArray[np.int32] | None = None,
) -> Placed:  # fmt: skip
    """Assigns samples to their buckets. widths, heights: (n,) pixels, above 0, after EXIF rotation. sets: (n,) number
    of the set in `settings.image_sets`. most: the frames of clips, see `count_frames`; those with none are placed
    somewhere."""
    width, height, of_set = np.asarray(widths), np.asarray(heights), np.asarray(sets)
    if settings.has_clips and settings.clips.buckets:
        assert most is not None, "clips need their numbers of frames"
        most = np.maximum(most, clip_buckets.counts(settings.clips)[0]).astype(np.int32)
        return _placed_once(clip_buckets.of_clips(width, height, most, table(settings)))
    every = settings.image_sets()
    lengths = [clip_buckets.counts(one.settings.clips) for one in every]
    kinds = {
        (one.settings.resolution, one.settings.buckets, counts) for one, counts in zip(every, lengths, strict=True)
    }
    if len(kinds) == len(lengths[0]) == len(every[0].sizes) == 1:
        return _placed_once(of_images(width, height, every[0].settings))
    numbers = {size: number for number, size in enumerate(table(settings))}
    choices = np.array([len(one.sizes) for one in every], np.int16)[of_set]
    sample = np.repeat(np.arange(len(width)), choices)
    choice = (np.arange(len(sample)) - np.repeat(np.cumsum(choices) - choices, choices)).astype(np.int16)
    bucket = np.empty(len(sample), np.int16)
    for number, one in enumerate(every):
        for of, of_size in enumerate(one.sizes):
            chosen = np.flatnonzero((of_set[sample] == number) & (choice == of))
            rows = sample[chosen]
            in_table = np.array([numbers[size] for size in _sizes_of(of_size)], np.int16)
            index = of_images(width[rows], height[rows], of_size).astype(np.int64)
            if most is not None:
                index += np.searchsorted(lengths[number], most[rows]) * len(shapes(of_size))
            bucket[chosen] = in_table[index]
    return Placed(sample, bucket, choice, choices[sample])


def _placed_once(bucket: NDArray[np.int16]) -> Placed:
    none, ones = np.broadcast_to(np.int16(0), len(bucket)), np.broadcast_to(np.int16(1), len(bucket))
    return Placed(np.arange(len(bucket)), bucket, none, ones)


def shapes(settings: DataSettings) -> tuple[Size, ...]:
    """The sizes of images of one set in one base size, sorted by width over height, from tall to wide; with
    `buckets.shape=table` in the order of that table; with `list`, sizes with the same aspect ratio from small to large;
    with `range` and `own` by width, then height.

    Sides are multiples of `buckets.step`, the area is at most resolution², the aspect at most `buckets.max_aspect`.
    Of these sizes the table contains those that fit into no other one, so each is as large as its aspect allows, and
    each aspect occurs once. It always contains the square, and with each size its transpose. With
    `buckets.shape=square` it contains only the square.
    """
    [base], step = settings.resolution, settings.buckets.step
    if settings.buckets.shape == "table":
        return _table_sizes(base)
    if settings.buckets.shape == "list":
        return _listed_sizes(settings.buckets)
    if settings.buckets.shape == "square":
        return (Size(base, base),)
    if settings.buckets.shape == "range":
        return _range_sizes(base, step, settings.buckets.min_side, settings.buckets.max_side)
    if settings.buckets.shape == "own":
        return own_sizes.list_sizes(base, step)
    wide: list[Size] = []
    for short in range(base, 0, -step):
        longest = min(base * base // short, math.floor(short * settings.buckets.max_aspect + 1e-9))
        long = longest // step * step
        # `short` descends: a size whose long side does not exceed that of an earlier one is smaller in both sides
        if long >= short and (not wide or long > wide[-1].width):
            wide.append(Size(long, short))
    tall = [Size(size.height, size.width) for size in wide[1:]]
    return (*reversed(tall), *wide)


def of_images(widths: ArrayLike, heights: ArrayLike, settings: DataSettings) -> NDArray[np.int16]:
    """The index in `shapes(settings)` of each image's bucket, by the rule of that table. widths, heights: (n,) pixels,
    above 0, after EXIF rotation. Returns (n,) int16, 0 for an image that `has_bucket` leaves out."""
    if settings.buckets.shape == "own":
        [base], step = settings.resolution, settings.buckets.step
        indexes = own_sizes.find_buckets(np.asarray(widths), np.asarray(heights), base, step)
        return np.maximum(indexes, 0).astype(np.int16)
    sizes = shapes(settings)
    if settings.buckets.shape == "range":
        return _equal_or_nearest(np.asarray(widths), np.asarray(heights), sizes)
    if settings.buckets.shape == "table":
        return _nearest_by_ratio(np.asarray(widths), np.asarray(heights), sizes)
    if settings.buckets.shape == "list":
        kinds = _distinct_shapes(sizes)
        return _largest_filled(assign(widths, heights, kinds), np.asarray(widths), np.asarray(heights), sizes)
    return assign(widths, heights, sizes)


def has_bucket(
    widths: NDArray[Any], heights: NDArray[Any], sets: NDArray[Any], settings: DataSettings
) -> NDArray[np.bool_]:
    """Which images have a bucket in each of their base sizes, (n,): with `shape=own` not those whose bucket would be
    smaller than one step on a side. widths, heights, sets: as in `place`."""
    is_placed = np.ones(len(widths), np.bool_)
    for number, one in enumerate(settings.image_sets()):
        if one.settings.buckets.shape == "own":
            rows = np.flatnonzero(sets == number)
            for base in one.settings.resolution:
                step = one.settings.buckets.step
                is_placed[rows] &= own_sizes.find_buckets(widths[rows], heights[rows], base, step) >= 0
    return is_placed


def assign(widths: ArrayLike, heights: ArrayLike, buckets: Sequence[Size]) -> NDArray[np.int16]:
    """The index in `buckets` of each image's bucket: the nearest in log(width / height).

    widths, heights: (n,) pixels, above 0. buckets: sorted by aspect, as returned by `table`. Of two equally near
    buckets, the one nearer to the square is used; a rotated image is then always assigned to the rotated bucket.
    Returns (n,) int16.
    """
    wide = np.log(np.asarray([b.width for b in buckets], dtype=np.float64))
    aspects = wide - np.log(np.asarray([b.height for b in buckets], dtype=np.float64))
    middles = (aspects[1:] + aspects[:-1]) / 2
    # a difference of logarithms changes exactly its sign when width and height are swapped
    log_aspects = np.log(np.asarray(widths, dtype=np.float64)) - np.log(np.asarray(heights, dtype=np.float64))
    low, high = np.searchsorted(middles, log_aspects, side="left"), np.searchsorted(middles, log_aspects, side="right")
    return np.where(log_aspects > 0, low, high).astype(np.int16)


def is_undersized(
    widths: NDArray[Any], heights: NDArray[Any], bucket: NDArray[np.int16], sizes: Sequence[Size]
) -> NDArray[np.bool_]:
    """Which images are smaller than their bucket or only slightly larger: both sides differ from the bucket's, and the
    area is less than 1.02² times the bucket's (EveryDream2's rule for its report). widths, heights, bucket: (n,)."""
    width, height = (np.asarray([getattr(size, side) for size in sizes])[bucket] for side in ("width", "height"))
    area = widths.astype(np.float64) * heights
    is_smaller = area < (_MARGIN * width) * (_MARGIN * height)
    return np.asarray((widths != width) & (heights != height) & is_smaller, dtype=np.bool_)


def _nearest_by_ratio(widths: NDArray[Any], heights: NDArray[Any], sizes: Sequence[Size]) -> NDArray[np.int16]:
    """The bucket whose width / height differs least, the first of equally near ones. Compared with the logarithm, a
    tall image is assigned to a bucket nearer to the square."""
    ratios = np.asarray([size.width / size.height for size in sizes])
    nearest_bucket = np.empty(len(widths), np.int16)
    for start in range(0, len(widths), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        aspects = widths[chunk] / heights[chunk]
        nearest_bucket[chunk] = np.abs(ratios - aspects[:, None]).argmin(axis=1)
    return nearest_bucket


# --- a range of sides -----------------------------------------------------------------------------------------------


def _range_sizes(resolution: int, step: int, min_side: int, max_side: int) -> tuple[Size, ...]:
    """The square of the resolution, and for each width the largest height of at most resolution² pixels, and its
    transpose; by width, then height."""
    square = resolution // step * step
    sizes = {Size(square, square)}
    for width in range(min_side, max_side + 1, step):
        height = min(max_side, resolution**2 // width // step * step)
        if height >= min_side:
            sizes |= {Size(width, height), Size(height, width)}
    return tuple(sorted(sizes))


def _equal_or_nearest(widths: NDArray[Any], heights: NDArray[Any], sizes: Sequence[Size]) -> NDArray[np.int16]:
    """The bucket of exactly the image's size, otherwise the nearest in width / height."""
    bucket = _nearest_by_ratio(widths, heights, sizes)
    for number, size in enumerate(sizes):
        bucket[(widths == size.width) & (heights == size.height)] = number
    return bucket


# --- listed sizes ---------------------------------------------------------------------------------------------------


def _listed_sizes(settings: BucketSettings) -> tuple[Size, ...]:
    """The distinct sizes of a recipe, from tall to wide, those with the same aspect ratio from small to large."""
    assert settings.sizes is not None, "the recipe was not read"
    return tuple(
        sorted({Size(width, height) for height, width in settings.sizes}, key=lambda size: (size.aspect, size.pixels))
    )


def _distinct_shapes(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """The smallest size of each aspect ratio."""
    return tuple(next(group) for _, group in groupby(sizes, lambda size: size.aspect))


def _largest_filled(
    shape: NDArray[np.int16], widths: NDArray[Any], heights: NDArray[Any], sizes: Sequence[Size]
) -> NDArray[np.int16]:
    """The index in `sizes` of each image's bucket. shape: (n,) index in `_distinct_shapes(sizes)`. widths, heights:
    (n,)."""
    lengths = [len(list(group)) for _, group in groupby(sizes, lambda size: size.aspect)]
    first = np.concatenate(([0], np.cumsum(lengths)))
    bucket = first[shape]
    for number in np.flatnonzero(np.asarray(lengths) > 1).tolist():
        for index in range(int(first[number]) + 1, int(first[number + 1])):
            is_filled = (widths >= sizes[index].width) & (heights >= sizes[index].height)
            bucket = np.where((shape == number) & is_filled, index, bucket)
    return bucket.astype(np.int16)


# The bucket sizes that EveryDream2 lists, one list for each resolution. Two entries, of 320 and 1280, are not the
# transpose of the one before them; they are kept, so every image is assigned to the same bucket as in EveryDream2.
# 1680x576 is the only size whose sides are not multiples of 64.
_WIDE = {
    256: "384x192 512x128",
    320: "384x256 448x192 576x128",
    384: "448x320 512x256 704x192",
    448: "512x384 640x320 768x256",
    512: "576x448 640x384 768x320 896x256 1024x256",
    576: "640x512 704x448 832x384 960x320 1152x256",
    640: "704x576 768x512 832x448 896x448 1024x384 1152x320 1280x320",
    704: "768x640 832x576 960x512 1088x448 1152x384 1280x384 1280x320",
    768: "832x704 896x640 960x576 1024x576 1152x512 1280x448 1408x384 1472x320",
    832: "896x768 960x704 1024x640 1152x576 1216x512 1344x512 1536x448 1600x384",
    896: "1024x768 1088x704 1216x640 1344x576 1536x512 1792x448",
    960: "1088x832 1152x768 1280x704 1408x640 1680x576 1792x512 2048x448",
    1024: "1152x896 1216x832 1344x768 1472x704 1600x640 1792x576 2048x512",
    1088: "1152x1024 1216x896 1408x832 1536x768 1664x704 1792x640 2048x576 2304x512",
    1152: "1280x1024 1344x960 1472x896 1536x832 1728x768 1856x704 2048x640 2304x576",
    1280: "1408x1152 1600x1024 1792x896 1920x832 2112x768 2304x704 2560x640",
    1536: "1728x1344 1792x1280 2048x1152 2304x1024 2432x960 2624x896 2816x832 3072x768",
}
_NOT_MIRRORED = {(320, "576x128"): "576x640", (1280, "1408x1152"): "1408x1344"}


def _table_sizes(resolution: int) -> tuple[Size, ...]:
    """The sizes of a resolution, in the order that decides between equally near ones: the square, then each wide size
    and its transpose. resolution: one of `recipe.data.TABLES`."""
    sizes = [Size(resolution, resolution)]
    for text in _WIDE[resolution].split():
        wide = _parse_size(text)
        tall = _NOT_MIRRORED.get((resolution, text))
        sizes += [wide, _parse_size(tall) if tall else Size(wide.height, wide.width)]
    return tuple(sizes)


def _parse_size(text: str) -> Size:
    width, height = text.split("x")
    return Size(int(width), int(height))
