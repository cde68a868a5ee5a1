"""Fewer points, and the same look."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.board.curves import shown, thinned

values = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=400)


@given(values, st.integers(4, 60))
def test_the_extremes_and_the_ends_stay(numbers: list[float], most: int) -> None:
    x, y = np.arange(len(numbers), dtype=np.float64), np.array(numbers)
    few_x, few_y = thinned(x, y, most)
    assert len(few_x) <= max(4, most)
    assert np.all(np.diff(few_x) > 0)
    np.testing.assert_array_equal(few_y, y[few_x.astype(int)])
    assert (few_x[0], few_x[-1]) == (0, len(numbers) - 1)
    finite = y[np.isfinite(y)]
    if len(finite):
        kept = few_y[np.isfinite(few_y)]
        assert (kept.min(), kept.max()) == (finite.min(), finite.max())


def test_one_spike_among_a_million_is_seen() -> None:
    y = np.zeros(1_000_000)
    y[123_456] = 9.0
    x = np.arange(1_000_000, dtype=np.float64)
    few_x, few_y = thinned(x, y, 2000)
    assert few_x[few_y.argmax()] == 123_456


def test_a_stretch_reaches_to_its_neighbours() -> None:
    x = np.arange(10, dtype=np.float64)
    few_x, _ = shown(x, x, 100, begin=3.5, end=6.5)
    assert few_x.tolist() == [3, 4, 5, 6, 7]
