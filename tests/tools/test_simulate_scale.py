"""The simulation of a start with a thousand processes, over few samples."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import simulate_scale
from mezzotint.data.catalogue import sharing
from mezzotint.data.schedule import plan as timeline
from mezzotint.tasks.cache import inventory


def test_start_of_a_thousand_ranks_runs_the_real_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate_scale, "agreeing", lambda world: 1e-6 * world)
    monkeypatch.setattr(simulate_scale, "SHORT", 0.0)
    monkeypatch.setattr(simulate_scale.gc, "collect", lambda: 0)  # would also collect garbage of other tests
    counted, share = [], inventory.images_of_process

    def watched(digests: Any, rank: int, world_size: int) -> Any:
        mine = share(digests, rank, world_size)
        counted.append(int(mine.sum()))
        return mine

    monkeypatch.setattr(inventory, "images_of_process", watched)
    lines = simulate_scale.simulate(
        [300, 600], 1000, tmp_path, lambda n, ranks, at: simulate_scale.a_start(at, n, ranks)
    )
    parts = [line.split("|")[1].strip() for line in lines if line.startswith("|")]
    assert parts[2:8] == [
        "open the index, every byte checked", "choose rows, their buckets, the run's length", "plan an epoch",
        "its part of all steps, cut", "open the cache's shards", "look up its part of the cache",
    ]  # fmt: skip
    assert len(counted) == 2 * simulate_scale.RANKS_TIMED, "the timed ranks of two sizes"
    assert lines[-3].startswith("one process for all, list: ")


@pytest.mark.parametrize(("seconds", "times", "expected"), [((0.3, 0.1), 1, 0.3), ((0.04, 0.02, 0.03), 4, 0.005)])
def test_part_is_timed_without_garbage_collection_by_its_minimum(
    seconds: tuple[float, ...], times: int, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, given, collected = [7.0], list[str](), list[str]()

    def work(what: str) -> str:
        assert not gc.isenabled()
        assert len(collected) == len(given) + 1, "garbage is collected before each"
        now[0] += seconds[len(given)]
        given.append(what)
        return what

    monkeypatch.setattr(simulate_scale.time, "thread_time", lambda: now[0])
    monkeypatch.setattr(simulate_scale.gc, "collect", lambda: collected.append("all"))
    measured = simulate_scale._Measured()
    assert measured.part("a part", work, "given", lambda: "created", times=times) == "given"
    assert measured.seconds == {"a part": pytest.approx(expected)}
    assert given == ["given", "created", "created"][: 1 if seconds[0] > 0.05 else 3]
    assert gc.isenabled()


def test_repeated_part_uses_no_earlier_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise cached results of the first time would be measured."""
    monkeypatch.setattr(simulate_scale, "SHORT", 1e9)
    monkeypatch.setattr(simulate_scale.gc, "collect", lambda: 0)
    monkeypatch.setattr(simulate_scale, "RANKS_TIMED", 2)
    planned, plan = [], timeline.plan
    monkeypatch.setattr(timeline, "plan", lambda *about, **words: planned.append(1) or plan(*about, **words))
    simulate_scale.write_images(tmp_path / "images", 8)
    assert simulate_scale.a_start(tmp_path, 300, 10)["steps"] > 0
    assert len(planned) == 3


def test_widened_rows_are_distinct_samples(tmp_path: Path) -> None:
    simulate_scale.write_images(tmp_path / "images", 5)
    settings = simulate_scale.settings_of(tmp_path)
    catalogue = simulate_scale.widened(tmp_path, settings, 23)
    assert len(catalogue) == 23 == len(np.unique(catalogue.key_hash)) == len(np.unique(catalogue.digest, axis=0))
    assert [catalogue.captions(row) for row in (4, 5, 22)] == [("image 4",), ("image 0",), ("image 2",)]
    assert catalogue.path(7).is_file()
    assert sharing.at_address(sharing.to_address(catalogue), settings) is not None


def test_growth_exponent_is_computed_from_two_sizes() -> None:
    assert simulate_scale.exponent([10, 1000], [1.0, 100.0]) == pytest.approx(1.0)
    assert simulate_scale.exponent([10, 1000], [1.0, 10000.0]) == pytest.approx(2.0)
    assert simulate_scale.extrapolated(10_000_000, 1.0) == pytest.approx(10 * 8 / 7)


@pytest.mark.slow
def test_hundred_processes_agree() -> None:
    before = threading.active_count()
    assert simulate_scale.agreeing(100) > 0
    assert threading.active_count() == before
