"""Which sizes are trained, and which of them a picture falls into. Between the catalogue and the plan.

A batch holds pictures of one size, so each picture goes to the bucket nearest to its own shape. How near is told in
log(width / height), or, for the sizes of a hand-made table, in width / height.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mezzotint.data.buckets import _everydream_table, _listed, clip_buckets
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.shapes import Size

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue

_CHUNK = 1 << 15
_HARDLY = 1.02


def table(settings: DataSettings) -> tuple[Size, ...]:
    """The buckets of a recipe: sizes of pictures (`shapes`), or of clips (`clip_buckets.table`)."""
    if settings.has_clips:
        return clip_buckets.table(settings, () if settings.clips.buckets else shapes(settings))
    return shapes(settings)


def of_rows(catalogue: Catalogue, rows: ArrayLike, settings: DataSettings) -> NDArray[np.int16]:
    """The index in `table(settings)` of the bucket of each of some rows of a catalogue, (n,) int16."""
    chosen = np.asarray(rows, dtype=np.int64)
    width, height = catalogue.width[chosen], catalogue.height[chosen]
    if not settings.has_clips or not settings.clips.buckets:
        return of_pictures(width, height, settings)
    frames, rate, start = catalogue.frames[chosen], catalogue.rate[chosen], catalogue.overrides.start[chosen]
    most = clip_buckets.most_frames(frames, rate, start, settings.clips)
    return clip_buckets.of_clips(width, height, most, table(settings))


def shapes(settings: DataSettings) -> tuple[Size, ...]:
    """The sizes of pictures, sorted by width over height, from tall to wide; with `buckets.shape=table` in the order
    of that table, with `list` with those of one shape from small to large.

    Sides are multiples of `buckets.step`, the area is at most resolution², the aspect at most `buckets.max_aspect`.
    Of these sizes the table has those that fit into no other of them, so each is as large as its shape allows, and no
    shape comes twice. The square is always there, and with a size its transpose. With
    `buckets.shape=square` the square is all there is.
    """
    base, step = settings.resolution, settings.buckets.step
    if settings.buckets.shape == "table":
        return _everydream_table.sizes(base)
    if settings.buckets.shape == "list":
        return _listed.sizes(settings.buckets)
    if settings.buckets.shape == "square":
        return (Size(base, base),)
    wide: list[Size] = []
    for short in range(base, 0, -step):
        longest = min(base * base // short, math.floor(short * settings.buckets.max_aspect + 1e-9))
        long = longest // step * step
        # descending `short`: a size whose long side does not exceed an earlier one's is smaller in both sides
        if long >= short and (not wide or long > wide[-1].width):
            wide.append(Size(long, short))
    tall = [Size(size.height, size.width) for size in wide[1:]]
    return (*reversed(tall), *wide)


def of_pictures(widths: ArrayLike, heights: ArrayLike, settings: DataSettings) -> NDArray[np.int16]:
    """The index in `shapes(settings)` of each picture's bucket, by the rule of that table. widths, heights: (n,)
    pixels, above 0, after the EXIF turn. Returns (n,) int16."""
    sizes = shapes(settings)
    if settings.buckets.shape == "table":
        return _nearest_by_ratio(np.asarray(widths), np.asarray(heights), sizes)
    if settings.buckets.shape == "list":
        kinds = _listed.shapes(sizes)
        return _listed.of_shape(assign(widths, heights, kinds), np.asarray(widths), np.asarray(heights), sizes)
    return assign(widths, heights, sizes)


def assign(widths: ArrayLike, heights: ArrayLike, buckets: Sequence[Size]) -> NDArray[np.int16]:
    """The index in `buckets` of each picture's bucket: the nearest in log(width / height).

    widths, heights: (n,) pixels, above 0. buckets: sorted by aspect, as `table` gives them. Of two buckets equally
    near, the one nearer to the square is taken, so that a turned picture always falls into the turned bucket.
    Returns (n,) int16.
    """
    wide = np.log(np.asarray([b.width for b in buckets], dtype=np.float64))
    aspects = wide - np.log(np.asarray([b.height for b in buckets], dtype=np.float64))
    middles = (aspects[1:] + aspects[:-1]) / 2
    # a difference of logarithms changes its sign exactly when width and height change places
    wanted = np.log(np.asarray(widths, dtype=np.float64)) - np.log(np.asarray(heights, dtype=np.float64))
    low, high = np.searchsorted(middles, wanted, side="left"), np.searchsorted(middles, wanted, side="right")
    return np.where(wanted > 0, low, high).astype(np.int16)


def nearest(size: Size, buckets: Sequence[Size]) -> Size:
    """`assign` for one picture."""
    return buckets[int(assign([size.width], [size.height], buckets)[0])]


def is_undersized(
    widths: NDArray[Any], heights: NDArray[Any], bucket: NDArray[np.int16], sizes: Sequence[Size]
) -> NDArray[np.bool_]:
    """Which pictures are smaller than their bucket or hardly larger: neither side is the bucket's, and the area is less
    than 1.02² of the bucket's (EveryDream2's rule for its report). widths, heights, bucket: (n,)."""
    width, height = (np.asarray([getattr(size, side) for size in sizes])[bucket] for side in ("width", "height"))
    area = widths.astype(np.float64) * heights
    is_less = area < (_HARDLY * width) * (_HARDLY * height)
    return np.asarray((widths != width) & (heights != height) & is_less, dtype=np.bool_)


def _nearest_by_ratio(widths: NDArray[Any], heights: NDArray[Any], sizes: Sequence[Size]) -> NDArray[np.int16]:
    """The bucket whose width / height differs least, the first of equally near ones. Its middles lie elsewhere than
    those of the logarithm: a tall picture goes to a squarer bucket."""
    ratios = np.asarray([size.width / size.height for size in sizes])
    found = np.empty(len(widths), np.int16)
    for start in range(0, len(widths), _CHUNK):
        some = slice(start, start + _CHUNK)
        wanted = widths[some] / heights[some]
        found[some] = np.abs(ratios - wanted[:, None]).argmin(axis=1)
    return found
