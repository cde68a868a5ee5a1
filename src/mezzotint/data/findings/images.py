"""Images that are duplicates, smaller than their bucket, or mostly cropped."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mezzotint.data.buckets import buckets
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.findings.finding import Example, Finding, examples_of, limit_examples
from mezzotint.data.findings.pairs import is_same_pair
from mezzotint.settings.counting import format_count
from mezzotint.settings.sections.data import DataSettings

MOSTLY_CUT = 0.5
"""An image of which less than this share is used counts as mostly cropped."""

_MUCH = 1.5
"""Upscaling factor above which an image is visibly blurred."""


def seen_shares(catalogue: Catalogue, rows: ArrayLike, settings: DataSettings) -> NDArray[np.float64]:
    """The share of each image's area that is left after the crop to its bucket, (n,), 0 to 1; with several base sizes
    the smallest."""
    chosen = np.asarray(rows, dtype=np.int64)
    table, placed = buckets.table(settings), catalogue.buckets_of(chosen, settings)
    wide, high = (np.asarray([getattr(size, side) for size in table], np.float64) for side in ("width", "height"))
    aspect = catalogue.width[chosen] / catalogue.height[chosen].astype(np.float64)
    ratio = aspect[placed.sample] / (wide / high)[placed.bucket]
    left = np.minimum(ratio, 1.0 / ratio)
    is_own = [one.settings.buckets.shape == "own" for one in settings.image_sets()]
    if any(is_own):  # an image that keeps its size is cropped on both sides
        area = catalogue.width[chosen] * catalogue.height[chosen].astype(np.float64)
        most = np.array([max(one.settings.resolution) ** 2 for one in settings.image_sets()])[catalogue.set[chosen]]
        keeps = np.array(is_own)[catalogue.set[chosen]] & (area <= most)
        left = np.where(keeps[placed.sample], (wide * high)[placed.bucket] / area[placed.sample], left)
    shares = np.ones(len(chosen))
    np.minimum.at(shares, placed.sample, left)
    return shares


def enlargements(catalogue: Catalogue, rows: ArrayLike, settings: DataSettings) -> NDArray[np.float64]:
    """The factor by which each image is enlarged to fill its bucket, (n,); at most 1 for one that is not. With several
    base sizes the largest."""
    chosen = np.asarray(rows, dtype=np.int64)
    table, placed = buckets.table(settings), catalogue.buckets_of(chosen, settings)
    wide, high = (np.asarray([getattr(size, side) for size in table])[placed.bucket] for side in ("width", "height"))
    width, height = catalogue.width[chosen][placed.sample], catalogue.height[chosen][placed.sample]
    factor = np.zeros(len(chosen))
    np.maximum.at(factor, placed.sample, np.maximum(wide / width, high / height))
    return factor


def find_copies(catalogue: Catalogue) -> dict[int, int]:
    """Rows whose file has the same bytes as the file of an earlier row, with the first such row."""
    keys = np.ascontiguousarray(catalogue.digest[:, :8]).view("<u8")[:, 0]
    ascending = np.sort(keys)
    if not (ascending[1:] == ascending[:-1]).any():  # twice as fast as the full search
        return {}
    order = np.argsort(keys, kind="stable")  # stable: equal ones keep the row order
    again = np.flatnonzero(keys[order][1:] == keys[order][:-1]) + 1
    first_row: dict[int, int] = {}
    for index in again.tolist():
        row, before = int(order[index]), int(order[index - 1])
        is_same = bool((catalogue.digest[row] == catalogue.digest[before]).all())
        if is_same and catalogue.path(row) != catalogue.path(before):
            first_row[row] = first_row.get(before, before)
    return first_row


def of_copies(catalogue: Catalogue, rows: NDArray[np.int32]) -> Iterator[Finding]:
    """Exact copies among the trained samples. rows: theirs."""
    same = find_copies(catalogue)
    if not same:
        return
    trained = set(rows.tolist())
    both = ((row, first) for row, first in same.items() if row in trained and first in trained)
    pairs = [(row, first) for row, first in both if is_same_pair(catalogue, row, first)]
    if pairs:
        verb, them = ("is", "it") if len(pairs) == 1 else ("are", "them")
        yield Finding(
            "duplicates", "look", len(pairs),
            f"{format_count(len(pairs), 'exact copy')} of other images {verb} trained twice",
            f"remove {them}; to show an image more often, use data.repeats",
            limit_examples(
                Example(f"{catalogue.label(row)} = {catalogue.label(first)}", (("", first), ("", row)))
                for row, first in pairs
            ),
        )  # fmt: skip


def of_sizes(catalogue: Catalogue, rows: NDArray[np.int32], settings: DataSettings) -> Iterator[Finding]:
    """Samples smaller than their bucket, and images that are mostly cropped."""
    word = "clip" if settings.has_clips else "image"
    width, height = catalogue.width[rows], catalogue.height[rows]
    factor = enlargements(catalogue, rows, settings)
    small = np.flatnonzero(factor > 1)
    if len(small):
        order = small[np.argsort(-factor[small], kind="stable")].tolist()
        much = int((factor[small] > _MUCH).sum())
        worst = f"{much:,} of them more than {_MUCH:g} times" if much else "none of them much"
        yield Finding(
            "undersized", "look" if much else "know", len(small),
            f"{format_count(len(small), word)} smaller than {'its' if len(small) == 1 else 'their'} bucket and "
            "enlarged, "
            f"{worst}; the model learns blur",
            "lower data.resolution, skip them with data.small_images, or use larger originals",
            examples_of(rows[order].tolist(), (
                f"{catalogue.label(int(rows[i]))} ({width[i]}×{height[i]}, enlarged {factor[i]:.2g} times)"
                for i in order
            )),
        )  # fmt: skip
    if settings.has_clips:
        return
    shares = seen_shares(catalogue, rows, settings)
    cut = np.flatnonzero(shares < MOSTLY_CUT)
    if len(cut):
        order = cut[np.argsort(shares[cut], kind="stable")].tolist()
        yield Finding(
            "extreme-shapes", "look", len(cut),
            f"{format_count(len(cut), word)} with an aspect ratio far from every bucket; most of it is cropped",
            "crop by hand, or raise data.buckets.max_aspect, or with data.buckets.shape=own lower data.buckets.step",
            examples_of(rows[order].tolist(), (
                f"{catalogue.label(int(rows[i]))} ({width[i]}×{height[i]}, {100 * shares[i]:.2g} % used)"
                for i in order
            )),
        )  # fmt: skip
