"""Plans of several sets and base sizes: batch sizes, visits at each size or a random one, class images."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from mezzotint import draws
from mezzotint.data.schedule._pairing import balance_repeats
from mezzotint.data.schedule.columns import Choices, PlanColumns
from mezzotint.data.schedule.plan import Timeline, bucket_visits, num_steps, plan
from support.data_sets import small_of as settings_of


def columns_of(
    n: int, *, counts: tuple[int, ...] = (1,), is_random: bool = False, batch_sizes: tuple[int, ...] = (),
    repeats: float = 1.0,
) -> PlanColumns:  # fmt: skip
    """n samples, whose set is their number modulo those of `counts`; a set has that many base sizes, each of two
    buckets of its own."""
    rng, of_set = np.random.default_rng(n), np.arange(n) % len(counts)
    count = np.asarray(counts, np.int16)[of_set]
    sample = np.repeat(np.arange(n, dtype=np.int32), count)
    number = (np.arange(len(sample)) - np.repeat(np.cumsum(count) - count, count)).astype(np.int16)
    hashes = draws.keys(0, "samples", np.arange(n))[sample]
    choices = Choices(sample, number, count[sample], np.full(len(sample), is_random))
    return PlanColumns(
        np.where(number == 0, hashes, draws.keys(0, "resolution", hashes, number.astype(np.uint64))),
        (2 * number + rng.integers(0, 2, n)[sample]).astype(np.int16),
        np.full(len(sample), repeats, np.float32),
        batch_sizes=batch_sizes,
        size_of=(of_set[sample] % len(batch_sizes)).astype(np.int16) if len(batch_sizes) > 1 else None,
        choices=choices if max(counts) > 1 else None,
    )


def lengths(epoch: Any) -> list[int]:
    return np.diff(epoch.starts).tolist()


def visits_of(epoch: Any) -> list[tuple[int, int]]:
    return list(zip(epoch.order.tolist(), epoch.visit.tolist(), strict=True))


remainders = st.sampled_from(["short", "fill", "drop", "repeat"])


@limits(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.sampled_from([(1,), (3,), (1, 2), (2, 3, 1)]), st.booleans(), remainders,
       st.sampled_from([1.0, 2.0, 2.5]))  # fmt: skip
def test_visits_have_distinct_numbers_and_steps_are_counted_ahead(
    n: int, counts: tuple[int, ...], is_random: bool, remainder: str, repeats: float
) -> None:
    columns = columns_of(n, counts=counts, is_random=is_random, batch_sizes=(3, 2), repeats=repeats)
    settings = settings_of(batch_size=3, remainder=remainder)
    for epoch_number in (0, 3):
        epoch = plan(columns, settings, accumulation=2, seed=7, epoch=epoch_number)
        assert epoch.num_steps == num_steps(columns, settings, accumulation=2, seed=7, epoch=epoch_number)
        visits = visits_of(epoch)
        assert len(set(visits)) == len(visits)
        assert max(epoch.order.tolist(), default=0) < n


def test_each_visits_every_base_size_as_often_as_repeats_says() -> None:
    columns = columns_of(20, counts=(3,), repeats=2.0)
    epoch = plan(columns, settings_of(batch_size=4), accumulation=1, seed=1, epoch=0)
    of_visit = np.repeat(epoch.bucket, np.diff(epoch.starts)) // 2
    assert Counter(zip(epoch.order.tolist(), of_visit.tolist(), strict=True)) == {
        (sample, size): 2 for sample in range(20) for size in range(3)
    }
    assert (epoch.visit % 3 == of_visit).all(), "the number of a visit tells its base size"


def test_random_draws_one_base_size_for_each_visit_again_in_each_epoch() -> None:
    columns, settings = columns_of(300, counts=(3,), is_random=True, repeats=2.0), settings_of(batch_size=4)
    seen = []
    for number in range(2):
        epoch = plan(columns, settings, accumulation=1, seed=1, epoch=number)
        assert Counter(epoch.order.tolist()) == dict.fromkeys(range(300), 2)
        of_visit = np.repeat(epoch.bucket, np.diff(epoch.starts)) // 2
        seen.append(sorted(zip(epoch.order.tolist(), of_visit.tolist(), strict=True)))
        counts = np.bincount(of_visit)
        assert (np.abs(counts - 200) < 50).all(), counts
    assert seen[0] != seen[1]


def test_other_sets_do_not_change_the_random_sizes_of_a_sample() -> None:
    def sizes(counts: tuple[int, ...]) -> list[tuple[int, int]]:
        columns = columns_of(40, counts=counts, is_random=True)
        epoch = plan(columns, settings_of(batch_size=4), accumulation=1, seed=1, epoch=0)
        of_visit = np.repeat(epoch.bucket, np.diff(epoch.starts)) // 2
        return sorted(
            pair for pair in zip(epoch.order.tolist(), of_visit.tolist(), strict=True) if pair[0] % 2 == 0
        )  # fmt: skip

    assert sizes((2, 1)) == sizes((2, 2))


@pytest.mark.parametrize("remainder", ["short", "fill"])
def test_batches_never_mix_sets_of_different_batch_size(remainder: str) -> None:
    columns = columns_of(50, counts=(1, 1), batch_sizes=(5, 2))
    settings = settings_of(batch_size=5, remainder=remainder)
    epoch = plan(columns, settings, accumulation=1, seed=1, epoch=0)
    for first, end in zip(epoch.starts[:-1], epoch.starts[1:], strict=True):
        [of_set] = {int(sample) % 2 for sample in epoch.order[first:end]}
        assert end - first <= (5, 2)[of_set]
        if remainder == "fill":
            assert end - first == (5, 2)[of_set]


def test_visits_and_remainders_are_counted_by_batch_size() -> None:
    columns, settings = columns_of(50, counts=(1, 1), batch_sizes=(5, 2)), settings_of(batch_size=5)
    epoch = plan(columns, settings, accumulation=1, seed=1, epoch=0)
    visits = bucket_visits(columns, settings, seed=1, epoch=0, buckets=2)
    for bucket in range(2):
        of_bucket = [n for n, b in zip(lengths(epoch), epoch.bucket.tolist(), strict=True) if b == bucket]
        assert sum(of_bucket) == visits.total[bucket]
    sizes = [(np.bincount(columns.bucket[kind::2], minlength=2)).tolist() for kind in (0, 1)]
    assert visits.rest.tolist() == [sizes[0][b] % 5 + sizes[1][b] % 2 for b in range(2)]
    assert visits.missing.tolist() == [-sizes[0][b] % 5 + -sizes[1][b] % 2 for b in range(2)]


def test_sets_of_one_batch_size_share_batches() -> None:
    columns = columns_of(48, counts=(1, 1))
    epoch = plan(columns, settings_of(batch_size=8), accumulation=1, seed=1, epoch=0)
    mixed = [{int(s) % 2 for s in epoch.order[a:b]} for a, b in zip(epoch.starts[:-1], epoch.starts[1:], strict=True)]
    assert any(len(sets) == 2 for sets in mixed)


def test_timeline_with_random_sizes_finds_every_step() -> None:
    columns, settings = columns_of(30, counts=(2,), is_random=True), settings_of(batch_size=4)
    timeline = Timeline(columns, settings, accumulation=1, seed=5)
    ends = [timeline.epoch(epoch).num_steps for epoch in range(4)]
    assert [timeline.steps_of(epoch) for epoch in range(4)] == ends
    assert timeline.locate(ends[0]) == (1, 0)
    assert timeline.locate(sum(ends) - 1) == (3, ends[3] - 1)


def test_class_images_at_random_sizes_are_balanced_by_visits() -> None:
    prior, count = np.array([0, 0, 1, 1, 1, 1], np.bool_), np.array([1, 1, 2, 2, 2, 2], np.int16)
    exact = balance_repeats(np.array([3, 3, 1, 1, 1, 1], np.float32), prior, count)
    assert exact.tolist() == [3, 3, 3, 3, 3, 3], "two class images with six visits, like the two others"
