"""Samples with a group name share batches; the remainder of each group is batched with the others."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from mezzotint import draws
from mezzotint.data.schedule import _grouping
from mezzotint.data.schedule.columns import PlanColumns
from mezzotint.data.schedule.plan import Timeline, num_steps, plan, share_of
from mezzotint.settings.sections.subjects import RatingSettings
from support.data_sets import small_of as settings_of
from support.messages import refused


def columns_of(n: int, *, groups: int = 3, num_buckets: int = 3, repeats: float = 1.0, seed: int = 0) -> PlanColumns:
    rng = np.random.default_rng(seed)
    return PlanColumns(
        draws.keys(seed, "samples", np.arange(n)),
        rng.integers(0, num_buckets, n).astype(np.int16),
        np.full(n, repeats, dtype=np.float32),
        group=rng.integers(0, groups + 1, n).astype(np.int32),
    )


def batches_of(epoch: Any) -> list[np.ndarray[Any, Any]]:
    return [epoch.order[a:b] for a, b in zip(epoch.starts[:-1], epoch.starts[1:], strict=True)]


remainders = st.sampled_from(["short", "fill", "drop", "repeat"])


@limits(max_examples=50, deadline=None)
@given(st.integers(1, 90), st.integers(1, 5), st.integers(1, 4), remainders, st.sampled_from([1.0, 2.0, 0.5]))
def test_grouped_samples_fill_batches_of_their_group(
    n: int, batch: int, accumulation: int, remainder: str, repeats: float
) -> None:
    columns, settings = columns_of(n, repeats=repeats), settings_of(batch_size=batch, remainder=remainder)
    epoch = plan(columns, settings, accumulation=accumulation, seed=4, epoch=2)
    assert epoch.num_steps == num_steps(columns, settings, accumulation=accumulation, seed=4, epoch=2)
    visits = list(zip(epoch.order.tolist(), epoch.visit.tolist(), strict=True))
    assert len(set(visits)) == len(visits)
    assert (columns.bucket[epoch.order] == np.repeat(epoch.bucket, np.diff(epoch.starts))).all()
    seen, of_name = Counter[Any](), Counter[Any]()
    for rows in batches_of(epoch):
        groups = set(columns.group[rows].tolist())
        for row in rows.tolist():
            seen[int(columns.group[row]), int(columns.bucket[row])] += 1
        if len(groups) == 1 and groups != {0} and len(rows) == batch:
            of_name[groups.pop(), int(columns.bucket[rows[0]])] += batch
    if remainder == "short":
        assert sum(seen.values()) == len(epoch.order)
        for key, count in seen.items():
            if key[0]:
                assert of_name[key] >= count // batch * batch


@limits(max_examples=25, deadline=None)
@given(st.integers(1, 80), st.integers(1, 5), st.integers(1, 3))
def test_groups_do_not_change_the_visits(n: int, batch: int, accumulation: int) -> None:
    columns, settings = columns_of(n), settings_of(batch_size=batch)
    plain = PlanColumns(columns.key_hash, columns.bucket, columns.repeats)
    ours = plan(columns, settings, accumulation=accumulation, seed=1, epoch=0)
    theirs = plan(plain, settings, accumulation=accumulation, seed=1, epoch=0)
    assert sorted(ours.order.tolist()) == sorted(theirs.order.tolist())
    assert (ours.filled, ours.left_out) == (0, 0)


def test_empty_group_column_equals_no_column() -> None:
    columns = columns_of(300, groups=0)
    plain = PlanColumns(columns.key_hash, columns.bucket, columns.repeats)
    ours, theirs = (plan(c, settings_of(batch_size=4), accumulation=3, seed=1, epoch=5) for c in (columns, plain))
    assert ours.order.tolist() == theirs.order.tolist()
    assert ours.bucket.tolist() == theirs.bucket.tolist()


@limits(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=0, max_size=40), st.integers(1, 5))
def test_accumulation_windows_mix_groups_only_for_remainders(groups: list[int], accumulation: int) -> None:
    group = np.array(groups, dtype=np.int64)
    order = _grouping.arrange_batches(group, accumulation, seed=0, epoch=0)
    assert sorted(order.tolist()) == list(range(len(groups)))
    whole = len(order) // accumulation
    windows = group[order[: whole * accumulation]].reshape(whole, accumulation)
    pure = Counter(int(window[0]) for window in windows if (window == window[0]).all())
    for name, count in Counter(groups).items():
        if name:
            assert pure[name] >= count // accumulation


def test_ungrouped_batches_fill_windows_before_another_group() -> None:
    group = np.array([1, 1, 1, 2, 2, 2, 0, 0], dtype=np.int64)
    for seed in range(20):
        order = group[_grouping.arrange_batches(group, 4, seed=seed, epoch=0)]
        assert [set(order[:4].tolist()), set(order[4:].tolist())] in ([{1, 0}, {2, 0}], [{2, 0}, {1, 0}])


def test_order_of_windows_differs_by_epoch() -> None:
    group = np.repeat(np.arange(1, 9), 4)
    orders = {tuple(group[_grouping.arrange_batches(group, 4, seed=0, epoch=e)][::4].tolist()) for e in range(5)}
    assert len(orders) == 5


def test_remainder_repeat_fills_batches_and_lowers_their_weight() -> None:
    columns = columns_of(43, groups=0, num_buckets=4)
    settings = settings_of(batch_size=8, remainder="repeat", remainder_power=2.0)
    epoch = plan(columns, settings, accumulation=1, seed=0, epoch=0)
    assert (np.diff(epoch.starts) == 8).all()
    own = np.bincount(columns.bucket)
    short = 0
    for number, rows in enumerate(batches_of(epoch)):
        factor = epoch.factor[epoch.starts[number] : epoch.starts[number + 1]]
        left = int(own[epoch.bucket[number]]) % 8
        if len(set(rows.tolist())) == 8:
            assert (factor == 1).all()
        else:
            assert len(set(rows.tolist())) == left
            np.testing.assert_allclose(factor, (left / 8) ** 2, rtol=1e-6)
            short += 1
    assert short == int((own % 8 > 0).sum()) >= 3
    assert epoch.filled == int((-own % 8).sum())


def test_repeated_samples_differ_by_epoch() -> None:
    columns = PlanColumns(draws.keys(0, "s", np.arange(3)), np.zeros(3, np.int16), np.ones(3, np.float32))
    settings = settings_of(batch_size=8, remainder="repeat")
    counts = {tuple(np.bincount(plan(columns, settings, accumulation=1, seed=0, epoch=e).order)) for e in range(9)}
    assert len(counts) > 3


def test_rating_share_falls_by_the_formula_and_then_stays() -> None:
    rating = RatingSettings(fraction=0.5, epochs=4)
    assert [share_of(rating, e) for e in range(7)] == [1, 1, 0.875, 0.75, 0.75, 0.75, 0.75]
    assert [share_of(RatingSettings(), e) for e in range(3)] == [1, 1, 1]
    assert share_of(RatingSettings(fraction=0.0, epochs=10), 9) == pytest.approx(0.2)


def test_better_rated_samples_are_used_more_often() -> None:
    n = 400
    rating = np.where(np.arange(n) % 2, 3.0, 1.0).astype(np.float32)
    columns = PlanColumns(
        draws.keys(0, "s", np.arange(n)), np.zeros(n, np.int16), np.full(n, 2.0, np.float32), rating=rating
    )
    settings = settings_of(batch_size=4, rating={"fraction": 0.25, "epochs": 2001})
    whole = plan(columns, settings, accumulation=1, seed=0, epoch=0)
    assert len(whole.order) == 2 * n  # all of them, as often as their repeats
    taken = np.zeros(n)
    for epoch in range(1990, 2000):
        planned = plan(columns, settings, accumulation=1, seed=0, epoch=epoch)
        assert len(set(planned.order.tolist())) == len(planned.order) == math.ceil(n * share_of(settings.rating, epoch))
        taken += np.bincount(planned.order, minlength=n)
    assert 1.7 < taken[1::2].sum() / taken[::2].sum() < 2.8  # 3 to 1, but each sample has only two visits


def test_epoch_without_a_batch_because_of_ratings_is_an_error() -> None:
    columns = columns_of(9, groups=0, num_buckets=1)
    settings = settings_of(batch_size=8, remainder="drop", rating={"fraction": 0.1, "epochs": 3})
    timeline = Timeline(columns, settings, 1, 0)
    with refused("E1207", "do not fill a batch"):
        timeline.locate(10)


def test_many_samples_with_groups_are_planned_quickly() -> None:
    rng = np.random.default_rng(0)
    n = 300_000
    columns = PlanColumns(
        draws.keys(0, "s", np.arange(n)),
        rng.integers(0, 15, n).astype(np.int16),
        np.where(rng.random(n) < 0.1, 2.5, 1.0).astype(np.float32),
        group=rng.integers(0, 200, n).astype(np.int32),
    )
    settings, start = settings_of(batch_size=8, remainder="repeat"), time.process_time()
    plan(columns, settings, accumulation=4, seed=1, epoch=2)
    assert time.process_time() - start < 1.5  # 0.2 s on an idle core
