"""Benchmarks of the data path compare with code that does the same work."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench_checks import scale
from mezzotint.data.buckets import buckets
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.settings.sections.data import DataSettings


def test_marks_are_ratios_of_cpu_seconds_and_no_files_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 0.0

    def taking(seconds: Iterable[float], work: Callable[..., Any]) -> Callable[..., Any]:
        """The work, with these seconds on the clock for each call."""
        left = iter(seconds)

        def timed(*arguments: Any, **options: Any) -> Any:
            nonlocal clock
            clock += next(left)
            return work(*arguments, **options)

        return timed

    def cpu_seconds(work: Callable[[], object]) -> float:
        before = clock
        work()
        return clock - before

    planning = scale.planning
    monkeypatch.setattr(scale, "cpu_seconds", cpu_seconds)
    monkeypatch.setattr(scale, "planning", lambda num: taking(itertools.repeat(num / 1000), planning(num)))
    monkeypatch.setattr(scale, "plan_of_objects", taking(itertools.repeat(7.0), scale.plan_of_objects))
    monkeypatch.setattr(scale, "nearest_by_loop", taking(itertools.repeat(6.0), scale.nearest_by_loop))
    monkeypatch.setattr(buckets, "of_images", taking(itertools.repeat(2.0), buckets.of_images))
    monkeypatch.setattr(catalogues, "build", taking([6.0, 2.0], catalogues.build))
    monkeypatch.chdir(tmp_path)
    rows = scale.rows(1, 12, 1000, 2000)
    many, few = (f"nearest of {n} buckets for 1,000 samples, loop in Python / ours" for n in (75, 11))
    assert [mark for mark, _, _ in rows] == [
        "first listing of 12 small images / second start", many, few,
        "plan of 1,000, list of objects / ours", "plan of 2,000 / of 1,000",
    ]  # fmt: skip
    assert [goal for _, goal, _ in rows] == ["≥ 50", "≥ 50", "", "≥ 5", "≤ 15"]
    assert [figure for _, _, figure in rows] == ["4", "150", "150", "7.0", "2.0"], "the loop is of 1 in 50"
    assert list(tmp_path.iterdir()) == []


def test_loop_over_buckets_chooses_the_nearest_aspect() -> None:
    """The loop compares aspects, not their logarithms, so results differ only halfway between two buckets."""
    table, draw = buckets.table(DataSettings(resolution=1024)), np.random.default_rng(0)
    widths, heights = draw.integers(512, 4096, (2, 500))
    theirs = np.array(scale.nearest_by_loop(list(zip(widths.tolist(), heights.tolist(), strict=True)), table))
    ours = buckets.of_images(widths, heights, DataSettings(resolution=1024))
    assert np.abs(theirs - ours).max() <= 1
    assert (theirs == ours).mean() > 0.9


def test_plan_of_objects_has_each_once_in_batches_of_one_bucket() -> None:
    items: list[Any] = [SimpleNamespace(name=str(at), bucket=at % 3) for at in range(50)]
    batches = scale.plan_of_objects(items, 4)
    assert sorted(int(item.name) for batch in batches for item in batch) == list(range(50))
    assert all(len(batch) <= 4 and len({item.bucket for item in batch}) == 1 for batch in batches)
    orders = [[int(item.name) for item in batch] for batch in batches]
    assert any(order != sorted(order) for order in orders), "samples are shuffled"
    assert len(list(groupby(batch[0].bucket for batch in batches))) > 3, "batches are shuffled too: buckets alternate"
