"""Two processes are compared with one by wall time: processes that wait for each other gain nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench_checks import fill


def one_after_the_other(folder: Path, count: int, number: int) -> Sequence[fill.Filled]:
    """Processes that take eight CPU seconds for eight images, one after the other."""
    share = 8 // count
    return [fill.Filled(share, share, 100.0, 100.0 + share * (rank + 1)) for rank in range(count)]


def at_once(folder: Path, count: int, number: int) -> Sequence[fill.Filled]:
    """Parallel processes; the second starts later, and one round of three is slowed by another program."""
    slow = 5.0 if count == 2 and number == 1 else 0.0
    return [fill.Filled(8 // count, 8 / count, 0.1 * rank, 0.1 * rank + 8 / count + slow) for rank in range(count)]


def test_processes_that_wait_for_each_other_gain_no_wall_time(tmp_path: Path) -> None:
    by_clock, by_cpu = fill.by_two(tmp_path, 3, one_after_the_other)
    assert by_clock == pytest.approx(1.0)
    assert by_cpu == pytest.approx(2.0), "CPU seconds do not show waiting"


def test_processes_that_work_in_parallel_gain_wall_time(tmp_path: Path) -> None:
    assert fill.by_two(tmp_path, 3, at_once) == pytest.approx((8 / 4.1, 2.0))
