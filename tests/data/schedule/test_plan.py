"""The plan of an epoch is a pure function, complete and without duplicates."""

from __future__ import annotations

import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from mezzotint import draws
from mezzotint.data.schedule.columns import PlanColumns
from mezzotint.data.schedule.plan import Timeline, epoch_address, num_steps, plan
from support.data_sets import small_of as settings_of
from support.messages import refused


def columns_of(n: int, repeats: float = 1.0, num_buckets: int = 5, seed: int = 0) -> PlanColumns:
    rng = np.random.default_rng(seed)
    return PlanColumns(
        np.asarray([draws.text_key(f"{seed}/{i}.png") for i in range(n)], dtype=np.uint64),
        rng.integers(0, num_buckets, n).astype(np.int16),
        np.full(n, repeats, dtype=np.float32),
    )


def visits_of(epoch: Any) -> list[tuple[int, int]]:
    return list(zip(epoch.order.tolist(), epoch.visit.tolist(), strict=True))


sizes = st.integers(1, 60)
batch_sizes = st.integers(1, 9)
repeats = st.sampled_from([1.0, 2.0, 0.5, 2.5, 3.25])
remainders = st.sampled_from(["short", "fill", "drop"])


@limits(max_examples=50, deadline=None)
@given(sizes, batch_sizes, repeats, remainders, st.integers(1, 4), st.integers(0, 3))
def test_batches_are_well_formed(
    n: int, batch: int, times: float, remainder: str, accumulation: int, number: int
) -> None:
    columns = columns_of(n, times)
    settings = settings_of(batch_size=batch, remainder=remainder)
    epoch = plan(columns, settings, accumulation=accumulation, seed=7, epoch=number)
    lengths = np.diff(epoch.starts)
    assert epoch.starts[0] == 0
    assert epoch.starts[-1] == len(epoch.order) == len(epoch.visit) == len(epoch.factor)
    assert (lengths >= 1).all()
    assert (lengths <= batch).all()
    if remainder != "short":
        assert (lengths == batch).all()
    assert (columns.bucket[epoch.order] == np.repeat(epoch.bucket, lengths)).all()
    assert (epoch.step_of == np.arange(len(epoch.bucket)) // accumulation).all()
    assert epoch.num_steps == num_steps(columns, settings, accumulation=accumulation, seed=7, epoch=number)
    visits = visits_of(epoch)
    assert len(set(visits)) == len(visits)  # filled-up samples are separate visits
    fields = (epoch.order, epoch.visit, epoch.starts, epoch.step_of, epoch.bucket, epoch.factor)
    assert [str(field.dtype) for field in fields] == ["int32", "int32", "int64", "int32", "int16", "float32"]


@limits(max_examples=25, deadline=None)
@given(sizes, batch_sizes, repeats)
def test_remainder_policies_agree_on_the_visits(n: int, batch: int, times: float) -> None:
    columns = columns_of(n, times)

    def planned(remainder: str) -> Any:
        return plan(columns, settings_of(batch_size=batch, remainder=remainder), accumulation=1, seed=3, epoch=1)

    short, fill, drop = planned("short"), planned("fill"), planned("drop")
    whole = set(visits_of(short))
    assert {row for row, _ in whole} <= set(range(n))
    assert set(visits_of(drop)) <= whole <= set(visits_of(fill))
    assert len(fill.order) - fill.filled == len(drop.order) + drop.left_out == len(short.order)
    assert (short.filled, short.left_out, fill.left_out, drop.filled) == (0, 0, 0, 0)
    counts = np.bincount([row for row, _ in whole], minlength=n)
    assert (counts >= np.floor(times)).all()
    assert (counts <= np.ceil(times)).all()


def test_whole_repeats_visit_each_sample_that_often() -> None:
    epoch = plan(columns_of(50, 3.0), settings_of(batch_size=4), accumulation=1, seed=0, epoch=0)
    assert sorted(visits_of(epoch)) == [(row, visit) for row in range(50) for visit in range(3)]


def test_fractional_repeats_are_sampled_each_epoch() -> None:
    columns = columns_of(4000, 0.25)
    seen = [set(plan(columns, settings_of(), accumulation=1, seed=0, epoch=e).order.tolist()) for e in range(3)]
    assert all(900 < len(rows) < 1100 for rows in seen)
    assert len(seen[0] & seen[1]) < 400


def test_fill_cycles_through_a_bucket_smaller_than_a_batch() -> None:
    columns = PlanColumns(columns_of(2).key_hash, np.zeros(2, np.int16), np.ones(2, np.float32))
    epoch = plan(columns, settings_of(batch_size=5, remainder="fill"), accumulation=1, seed=0, epoch=0)
    first, second = epoch.order[:2].tolist()
    assert epoch.order.tolist() == [first, second, first, second, first]
    assert epoch.visit.tolist() == [0, 0, 1, 1, 2]
    assert epoch.filled == 3


def test_plan_is_deterministic_and_differs_by_seed_and_epoch() -> None:
    columns = columns_of(200)

    def order(seed: int, epoch: int) -> tuple[int, ...]:
        return tuple(plan(columns, settings_of(), accumulation=1, seed=seed, epoch=epoch).order.tolist())

    assert order(1, 0) == order(1, 0)
    assert len({order(*where) for where in ((1, 0), (1, 1), (2, 0), (2, 1))}) == 4


def test_order_within_a_bucket_depends_only_on_the_samples() -> None:
    columns = PlanColumns(columns_of(300).key_hash, np.zeros(300, np.int16), np.ones(300, np.float32))
    some = PlanColumns(columns.key_hash[::3], columns.bucket[::3], columns.repeats[::3])
    settings = settings_of(batch_size=1000)
    whole = plan(columns, settings, accumulation=1, seed=5, epoch=2).order
    part = plan(some, settings, accumulation=1, seed=5, epoch=2).order
    assert [row for row in whole.tolist() if row % 3 == 0] == [3 * row for row in part.tolist()]
    expected = np.argsort(draws.keys(5, "order", 2, columns.key_hash, np.zeros(300, np.int64)))
    assert whole.tolist() == expected.tolist()


def test_order_of_buckets_and_neighbours_looks_random() -> None:
    epoch = plan(columns_of(4000), settings_of(batch_size=4), accumulation=1, seed=0, epoch=0)
    same = float((epoch.bucket[1:] == epoch.bucket[:-1]).mean())
    assert 0.13 < same < 0.27  # five buckets of equal size
    assert abs(np.corrcoef(np.arange(4000), epoch.order)[0, 1]) < 0.06


def test_epoch_seed_add_equals_first_epoch_of_seed_plus_epoch() -> None:
    columns, settings = columns_of(60, 1.5), settings_of(epoch_seed="add")
    later = plan(columns, settings, accumulation=2, seed=555, epoch=2)
    first = plan(columns, settings_of(), accumulation=2, seed=557, epoch=0)
    assert visits_of(later) == visits_of(first)
    assert later.epoch == 2
    assert epoch_address(settings, *epoch_address(settings, 555, 2)) == (557, 0)


def timed(n: int) -> float:
    rng = np.random.default_rng(0)
    columns = PlanColumns(
        rng.integers(0, 2**63, n).astype(np.uint64), rng.integers(0, 9, n).astype(np.int16), np.ones(n, np.float32)
    )
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        plan(columns, settings_of(), accumulation=4, seed=1, epoch=2)
        best = min(best, time.process_time() - start)
    return best


def test_million_samples_are_planned_quickly() -> None:
    assert timed(1_000_000) < 0.6  # 0.06 s on an idle core


def test_timeline_can_be_shared_by_threads() -> None:
    columns, settings = columns_of(40, 1.5), settings_of(batch_size=4)
    shared, separate = Timeline(columns, settings, 2, 9), Timeline(columns, settings, 2, 9)
    with ThreadPoolExecutor(8) as pool:
        located = list(pool.map(shared.locate, range(400)))
    assert located == [separate.locate(step) for step in range(400)]


@pytest.mark.timing
def test_planning_time_is_linear() -> None:
    assert timed(10_000_000) / timed(1_000_000) <= 15


@pytest.mark.parametrize("times", [1.0, 2.0, 0.5, 1.75])
def test_timeline_finds_every_step(times: float) -> None:
    columns, settings = columns_of(37, times), settings_of(batch_size=4)
    timeline = Timeline(columns, settings, 2, 9)
    walked = [(e, s) for e in range(5) for s in range(timeline.epoch(e).num_steps)]
    assert [timeline.locate(step) for step in range(len(walked))] == walked
    fresh = Timeline(columns, settings, 2, 9)
    assert fresh.locate(len(walked) - 1) == walked[-1]  # without earlier requests
    assert timeline.steps_until(3) == sum(timeline.epoch(e).num_steps for e in range(3))
    assert timeline.steps_until(0.5) == -(-timeline.epoch(0).num_steps // 2)
    for epochs in (1, 2, 3, 5):
        assert timeline.epochs_in(timeline.steps_until(epochs)) == epochs
    first = timeline.steps_of(0)
    assert timeline.epochs_in(first - 1) == pytest.approx(1 - 1 / first)
    assert timeline.epochs_in(0) == 0
    few = Timeline(columns, settings, 2, 9)
    assert few.epochs_in(10 * few.steps_of(0)) == pytest.approx(10), (
        "epochs that were not reached count as long as the known ones"
    )


def test_whole_repeats_need_no_earlier_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    timeline = Timeline(columns_of(40), settings_of(batch_size=4), 1, 0)
    calls: list[int] = []

    def counted(*columns: Any, **where: Any) -> int:
        calls.append(where["epoch"])
        return num_steps(*columns, **where)

    monkeypatch.setattr("mezzotint.data.schedule.plan.num_steps", counted)
    assert timeline.locate(10**9)[0] > 10**6
    assert calls == [0]


def test_timeline_keeps_two_plans() -> None:
    timeline = Timeline(columns_of(40), settings_of(), 1, 0)
    first = timeline.epoch(0)
    timeline.epoch(1)
    assert timeline.epoch(0) is first
    timeline.epoch(2)
    assert timeline.epoch(0) is first
    assert timeline.epoch(1) is not None
    assert timeline.epoch(2) is not first


@pytest.mark.parametrize("times", [1.0, 0.5])
def test_data_set_without_a_batch_is_an_error(times: float) -> None:
    timeline = Timeline(columns_of(3, times, num_buckets=1), settings_of(batch_size=8, remainder="drop"), 1, 0)
    with refused("E1207", r"3 samples do not fill a batch of 8"):
        timeline.locate(0)


def test_planning_needs_few_bytes_per_visit() -> None:
    n = 1 << 18
    columns = PlanColumns(
        draws.keys(0, "n", np.arange(n)), (np.arange(n) % 35).astype(np.int16), np.ones(n, np.float32)
    )
    settings = settings_of(batch_size=8)
    tracemalloc.start()
    try:
        epoch = plan(columns, settings, accumulation=1, seed=1, epoch=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 22 * n  # 12 of them are chunks of a fixed size; ten million visits need 10 bytes each
    assert len(np.unique(epoch.order)) == n
