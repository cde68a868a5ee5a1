"""Fewer points for a curve than it has, so that it looks the same: of each stretch the lowest and the highest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def thinned(x: Numbers, y: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """At most `most` points of a curve, in their order: the first and the last, and the lowest and highest of each of
    as many equal stretches as fit. What is not finite is kept in its stretch when nothing else is. A curve that is
    short enough stays as it is."""
    count = len(x)
    if count <= max(4, most):
        return x, y
    stretches = max(1, (most - 2) // 2)
    edges = np.linspace(0, count, stretches + 1).astype(np.int64)
    low = _places(np.where(np.isfinite(y), y, np.inf), edges)
    high = _places(np.where(np.isfinite(y), -y, np.inf), edges)
    chosen = np.unique(np.concatenate([[0], low, high, [count - 1]]))
    return x[chosen], y[chosen]


def _places(values: Numbers, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """The index of the smallest value of each stretch, the first of several."""
    smallest = np.minimum.reduceat(values, edges[:-1])
    hits = np.flatnonzero(values == np.repeat(smallest, np.diff(edges)))
    stretch = np.searchsorted(edges, hits, side="right") - 1
    _, first = np.unique(stretch, return_index=True)
    return hits[first]


def shown(
    x: Numbers, y: Numbers, most: int, *, begin: float | None = None, end: float | None = None
) -> tuple[Numbers, Numbers]:
    """`thinned` of the part of a curve between two places, with the neighbour on each side, so that the line goes on to
    the edge."""
    first = 0 if begin is None else max(0, int(np.searchsorted(x, begin)) - 1)
    last = len(x) if end is None else min(len(x), int(np.searchsorted(x, end, side="right")) + 1)
    return thinned(x[first:last], y[first:last], most)
