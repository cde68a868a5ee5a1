"""Power loss after each call of a save, of appends to a cache and of an export: content that was not synced is lost, in
whole or in part. Files found afterwards are complete, and resuming gives the same bits."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.io_calls import watched
from support.power_loss import after_power_loss, taken
from support.write_failures import WORKS, Seen, Work, digest, swept

pytestmark = pytest.mark.exhaustive


def losses(work: Work, tmp_path: Path, *, sampled: int = 0, drawn: int = 2) -> int:
    """Checks each folder that a power loss may leave, and resumes in it; returns their number. sampled: only after so
    many calls, spread evenly. drawn: see `after_power_loss`."""
    root, places = tmp_path / "root", tmp_path / "places"
    root.mkdir()
    places.mkdir()
    work.before(root)
    before, seen = taken(root), Seen(digest(root), {})
    with watched(root) as calls:
        work.act(root)
    seen = replace(seen, end=digest(root))
    count = len(calls.calls)
    prefixes: Sequence[int] = sorted({round(n * count / (sampled - 1)) for n in range(sampled)} if sampled else ())
    wrong, trials = [], 0
    for number, what, place in after_power_loss(root, before, calls.calls, places, drawn=drawn, prefixes=prefixes):
        try:
            one_loss(work, place, seen, is_done=number == count)
        except Exception as error:
            last = calls.calls[number - 1] if number else None
            wrong.append(f"{number} of {count} calls, the last {last}, {what} is lost: {type(error).__name__}: {error}")
        trials += 1
        shutil.rmtree(place)
    assert not wrong, "\n".join(line[:2000] for line in wrong)
    return trials


def one_loss(work: Work, place: Path, seen: Seen, *, is_done: bool) -> None:
    """Checks the folder after a loss, and that repeating the work has the same result."""
    for folder in [place, *(path for path in place.rglob("*") if path.is_dir() and not path.is_symlink())]:
        swept(folder)
    work.look(place, replace(seen, is_done=is_done))
    work.act(place)
    work.look(place, seen)
    assert not work.has_end or digest(place) == seen.end


@pytest.mark.faults
@pytest.mark.parametrize(("name", "sampled"), [("save", 4), ("append", 3), ("export", 2)])
def test_some_power_losses_leave_complete_files(name: str, sampled: int, tmp_path: Path) -> None:
    assert losses(WORKS[name], tmp_path, sampled=sampled, drawn=1) >= 3


@pytest.mark.timeout(1800)
@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("name", WORKS)
def test_power_loss_after_each_call_leaves_complete_files(name: str, tmp_path: Path) -> None:
    print(name, losses(WORKS[name], tmp_path), "folders")


@pytest.mark.timeout(1800)
@pytest.mark.slow
@pytest.mark.faults
def test_run_resumes_bit_exactly_after_a_power_loss(world: Any) -> None:
    """Of a complete run with its logs: records that a checkpoint refers to exist when the checkpoint does."""
    short = {"run__steps": 4, "run__save__every": 2, "run__save__asynchronous": False}
    assert world.train("whole", **short) == 0
    whole, run = world.end("whole"), world.root / "run"
    run.mkdir()
    before = taken(run)
    with watched(run) as calls:
        assert world.train("run", **short) == 0
    assert world.end("run") == whole
    places = world.root / "places"
    places.mkdir()
    count = len(calls.calls)
    saved = [
        n for n, call in enumerate(calls.calls, 1) if call.name == "fsync" and call.path == str(run / "checkpoints")
    ]
    sampled = sorted({*saved, *(n + 1 for n in saved), *range(0, count, count // 8), count})
    trials = 0
    for number, what, place in after_power_loss(run, before, calls.calls, places, drawn=1, prefixes=sampled):
        if what not in ("nothing", "all content"):
            shutil.rmtree(run)
            place.rename(run)
            assert world.train("run", **short) == 0, (number, what)
            assert world.end("run") == whole, f"{number} of {count} calls, {what} is lost, {calls.calls[number - 1]}"
            trials += 1
        else:
            shutil.rmtree(place)
    print("a run", trials, "folders")
