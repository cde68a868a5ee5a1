"""Findings from decoding samples and their condition images: pairs that are shifted against each other, or do not
belong together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import product

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.catalogue import likeness
from mezzotint.data.catalogue.conditions import PairedImages
from mezzotint.data.findings.finding import Finding, examples_of
from mezzotint.errors import MezzotintError
from mezzotint.settings.counting import format_count
from mezzotint.tasks.doctor._examining import ExaminedData

_SIDE = 128
_CELLS = 48
"""Images are compared as grids of this many cells a side."""
_SHIFTS = 4
"""The largest shift that is tried, in cells."""
_CLEARER = 0.15
"""How much higher the correlation of a shifted pair must be."""
_UNLIKE = 0.4
"""Pairs with a lower correlation do not look like one image before and after an edit."""


def of_alignment(examined: ExaminedData) -> Iterator[Finding]:
    """Findings about each condition of the data set."""
    catalogue = examined.dataset.catalogue
    for name, paired in catalogue.conditions.items():
        shifted, unlike = [], []
        rows = examined.rows()
        for row in rows[paired.rows[rows] >= 0].tolist():
            with suppress(MezzotintError, OSError):
                before, after = _grids(examined, paired, row)
                aligned, best, shift = _correlate(before, after)
                if best < _UNLIKE:
                    unlike.append((row, best))
                elif best - aligned > _CLEARER:
                    shifted.append((row, shift))
        if shifted:
            yield Finding(
                "shifted-pairs", "look", len(shifted),
                f"{format_count(len(shifted), 'pair')} whose {name} image fits better when it is shifted",
                "crop both images in the same way; a model that learns from shifted pairs moves everything",
                examples_of([row for row, _ in shifted], (
                    f"{catalogue.label(row)} (about {100 * right / _CELLS:+.0f} % across, {100 * down / _CELLS:+.0f} % "
                    "down)"
                    for row, (down, right) in shifted
                )),
            )  # fmt: skip
        if unlike:
            yield Finding(
                "unlike-pairs", "look", len(unlike),
                f"{format_count(len(unlike), 'pair')} whose {name} image looks like another picture",
                "check that names match; a reference that is not the same scene is no mistake",
                examples_of([row for row, _ in unlike], (
                    f"{catalogue.label(row)} (correlation {best:.2f})" for row, best in unlike
                )),
            )  # fmt: skip


def _grids(examined: ExaminedData, paired: PairedImages, row: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The brightness of a condition image and of its sample, (n, n) each. Raises DatasetError."""
    catalogue, settings = examined.of_set("")
    images = ((paired.images, int(paired.rows[row])), (catalogue, row))
    first, second = (
        np.asarray(likeness.image_of(one, number, settings, _SIDE).convert("L").resize((_CELLS, _CELLS)), np.float64)
        for one, number in images
    )
    return first, second


def _correlate(before: NDArray[np.float64], after: NDArray[np.float64]) -> tuple[float, float, tuple[int, int]]:
    """The correlation of two grids in place, the best one, and the shift of `before` (down, right) that gives it."""
    each = range(-_SHIFTS, _SHIFTS + 1)
    inner = after[_SHIFTS:-_SHIFTS, _SHIFTS:-_SHIFTS]
    size = len(inner)
    scores = {
        (down, right): _correlation(
            before[_SHIFTS - down : _SHIFTS - down + size, _SHIFTS - right : _SHIFTS - right + size], inner
        )
        for down, right in product(each, each)
    }
    shift = max(scores, key=lambda key: scores[key])
    return scores[0, 0], scores[shift], shift


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Pearson's; 1 for two plain grids, 0 for a plain and another one."""
    first, second = first - first.mean(), second - second.mean()
    norms = float(np.linalg.norm(first)), float(np.linalg.norm(second))
    if min(norms) < 1e-9:
        return float(max(norms) < 1e-9)
    return float((first * second).sum() / (norms[0] * norms[1]))
