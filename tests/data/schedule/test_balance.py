"""How well samples fill their batches."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from mezzotint.data.buckets import buckets
from mezzotint.data.schedule.balance import fills
from mezzotint.data.schedule.columns import PlanColumns
from support.data_sets import small_of as settings_of


@pytest.mark.parametrize("remainder", ["short", "fill"])
def test_group_remainders_join_ungrouped_samples_and_gaps_are_counted(remainder: str) -> None:
    settings = settings_of(batch_size=4, remainder=remainder)
    square = next(i for i, size in enumerate(buckets.table(settings)) if size.aspect == 1)
    names = np.array([0] * 5 + [1] * 6 + [2] * 4, dtype=np.int32)
    columns = PlanColumns(
        np.arange(15, dtype=np.uint64), np.full(15, square, np.int16), np.ones(15, np.float32), group=names
    )
    all_fills = fills(columns, settings)
    nameless, six, four = all_fills
    assert [(fill.group, fill.images, fill.over) for fill in all_fills] == [(0, 5, 1), (1, 6, 2), (2, 4, 0)]
    assert (nameless.joined, nameless.filled) == (2, 1 if remainder == "fill" else 0)
    assert [fill.missing for fill in all_fills] == [3, 2, 0]
    assert [fill.is_underfilled for fill in all_fills] == [True, False, False]
    assert (six.multiplier, four.multiplier, six.ratio) == (1.3, 1.0, Fraction(1))
