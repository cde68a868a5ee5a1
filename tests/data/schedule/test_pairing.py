"""Class images: how often they are visited, and batches with half of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from mezzotint import draws
from mezzotint.data.schedule._pairing import balance_repeats
from mezzotint.data.schedule.columns import PlanColumns
from mezzotint.data.schedule.plan import Timeline, num_steps, plan
from support.data_sets import small_of


def columns_of(own: int, of_class: int, repeats: float = 1.0) -> PlanColumns:
    num = own + of_class
    prior = np.arange(num) >= own
    times = np.where(prior, 1.0, repeats).astype(np.float32)
    return PlanColumns(draws.keys(0, "pairing", np.arange(num)), np.zeros(num, np.int16), times, prior=prior)


def settings_of(**values: Any) -> Any:
    return small_of(prior={"path": ["reg"], "balance": "pairs"}, **{"batch_size": 4} | values)


def test_epoch_visits_class_images_as_often_as_the_others() -> None:
    for own, of_class, repeats in ((5, 20, 2.0), (30, 4, 1.0), (7, 3, 3.0)):
        columns = columns_of(own, of_class, repeats)
        assert columns.prior is not None
        times = balance_repeats(columns.repeats, columns.prior)  # type: ignore[arg-type]
        assert (times[:own] == repeats).all()
        assert times[own:].sum() == pytest.approx(own * repeats)
        even = PlanColumns(columns.key_hash, columns.bucket, times)
        epoch = plan(even, small_of(batch_size=4), accumulation=1, seed=1, epoch=0)
        assert (epoch.order >= own).sum() == (epoch.order < own).sum() == own * repeats
        counts = np.bincount(epoch.order, minlength=own + of_class)[own:]
        assert counts.max() - counts.min() <= 1
    others = [set(plan(even, small_of(), accumulation=1, seed=1, epoch=e).order.tolist()) for e in range(2)]
    assert others[0] == others[1]  # with fewer class images than visits each one is used


@pytest.mark.parametrize(("own", "of_class"), [(5, 12), (12, 5), (6, 6)])
@pytest.mark.parametrize("remainder", ["short", "fill", "drop", "repeat"])
def test_batch_is_half_class_images_paired_like_the_reference(own: int, of_class: int, remainder: str) -> None:
    columns, settings = columns_of(own, of_class), settings_of(remainder=remainder)
    epoch = plan(columns, settings, accumulation=2, seed=3, epoch=1)
    most = max(own, of_class)
    assert epoch.num_steps == num_steps(columns, settings, accumulation=2, seed=3, epoch=1)
    for first, last in zip(epoch.starts[:-1], epoch.starts[1:], strict=True):
        rows = epoch.order[first:last]
        half = len(rows) // 2
        assert (rows[:half] < own).all()
        assert (rows[half:] >= own).all()
        pairs = zip(rows[:half].tolist(), (rows[half:] - own).tolist(), strict=True)
        # item i of the reference pairs image i mod n with class image i mod m
        assert all(any(i % own == mine and i % of_class == other for i in range(most)) for mine, other in pairs)
    visits = list(zip(epoch.order.tolist(), epoch.visit.tolist(), strict=True))
    assert len(set(visits)) == len(visits)
    if remainder == "short":
        counts = Counter(epoch.order.tolist())
        assert all(counts[row] == len(range(row, most, own)) for row in range(own))
        assert all(counts[own + row] == len(range(row, most, of_class)) for row in range(of_class))
        again = plan(columns, settings, accumulation=2, seed=3, epoch=2)
        assert again.order.tolist() != epoch.order.tolist()
        assert sorted(again.order.tolist()) == sorted(epoch.order.tolist())


def test_pairs_follow_repeats_and_the_timeline_counts_them() -> None:
    columns, settings = columns_of(3, 4, repeats=2.5), settings_of()
    timeline = Timeline(columns, settings, 1, 0)
    for number in range(3):
        epoch = timeline.epoch(number)
        assert timeline.steps_of(number) == epoch.num_steps == -(-((epoch.order < 3).sum()) // 2)
        assert len(epoch.order) in (14, 16)
