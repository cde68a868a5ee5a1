"""Regions to fill (`data.inpaint`): rectangles and brush strokes, drawn by the address of a visit.

A region is in pixels of the placed image. All arithmetic is in integers, so a region is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws
from mezzotint.data.schedule.plan import Visit
from mezzotint.shapes import Size

FILLED = 255
"""The value of a pixel that is to be filled; others are 0."""

_MOST_SHAPES, _MOST_SEGMENTS = 4, 4
Below = Callable[[int], int]
"""n → the next number in [0, n)."""


def is_full(visit: Visit, share: float) -> bool:
    """Whether a visit fills the whole image. share: the probability of it."""
    return draws.uniform(visit.draw("inpaint-full")) < share


def draw_region(visit: Visit, size: Size) -> NDArray[np.uint8]:
    """The region of a visit, (H, W), `FILLED` or 0: one to four rectangles, or as many brush strokes, like the wide
    masks of LaMa (Suvorov et al. 2021, arXiv:2109.07161). size: of the placed image."""
    numbers = iter(range(1 << 16))

    def below(count: int) -> int:
        return draws.below(visit.draw("inpaint-mask", next(numbers)), count)

    region = np.zeros((size.height, size.width), np.uint8)
    add = _add_rectangle if below(2) else _add_stroke
    for _ in range(1 + below(_MOST_SHAPES)):
        add(region, below)
    return region


def _add_rectangle(region: NDArray[np.uint8], below: Below) -> None:
    """A rectangle with sides of an eighth to five eighths of the image's."""
    spans = []
    for length in region.shape:
        side = length // 8 + below(length // 2 + 1)
        start = below(length - side + 1)
        spans.append(slice(start, start + side))
    region[tuple(spans)] = FILLED


def _add_stroke(region: NDArray[np.uint8], below: Below) -> None:
    """One to four straight segments, one after the other, with round ends; a sixteenth to a quarter of the shorter side
    wide."""
    height, width = region.shape
    shorter = min(height, width)
    radius = max(1, shorter // 32 + below(shorter * 3 // 32 + 1))
    row, column = below(height), below(width)
    for _ in range(1 + below(_MOST_SEGMENTS)):
        reach = shorter // 2
        next_row = min(max(row + below(2 * reach + 1) - reach, 0), height - 1)
        next_column = min(max(column + below(2 * reach + 1) - reach, 0), width - 1)
        _add_segment(region, (row, column), (next_row, next_column), radius)
        row, column = next_row, next_column


def _add_segment(region: NDArray[np.uint8], start: tuple[int, int], end: tuple[int, int], radius: int) -> None:
    """All pixels within `radius` of a segment between two pixels (row, column)."""
    box = [
        slice(max(0, min(a, b) - radius), min(length, max(a, b) + radius + 1))
        for a, b, length in zip(start, end, region.shape, strict=True)
    ]
    rows, columns = (np.arange(one.start, one.stop, dtype=np.int64) for one in box)
    down, across = (rows - start[0])[:, None], (columns - start[1])[None]
    along, beside = end[0] - start[0], end[1] - start[1]
    squared = along * along + beside * beside
    position = down * along + across * beside  # times the length, from 0 at the start to its square at the end
    from_line = down * beside - across * along
    is_near = (position >= 0) & (position <= squared) & (from_line * from_line <= radius * radius * squared)
    for end_row, end_column in (start, end):
        is_near |= (rows - end_row)[:, None] ** 2 + (columns - end_column)[None] ** 2 <= radius * radius
    region[tuple(box)][is_near] = FILLED
