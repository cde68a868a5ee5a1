"""Each system call that writes a checkpoint, cache entries or an export is made to fail in turn: only our own errors
are raised, existing files stay intact, no partial file is visible, and resuming gives the same bits."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from mezzotint.errors import MezzotintError
from support.io_calls import Call, Failure, watched
from support.write_failures import TEMPORARY, WORKS, Seen, Work, digest, swept

pytestmark = pytest.mark.exhaustive

WAYS = (
    Failure(errno.ENOSPC), Failure(errno.EIO), Failure(errno.EIO, half=True), Failure(errno.ENOSPC, lasts=True),
    Failure(short=True),
)  # fmt: skip


def one_failure(work: Work, root: Path, failure: Failure, seen: Seen) -> None:
    """Checks the folder after a failure, and that repeating the work has the same result."""
    error: MezzotintError | None = None
    with watched(root, failure):
        try:
            work.act(root)
        except MezzotintError as met:
            error = met
    assert not (failure.short and error), error
    work.look(root, replace(seen, is_done=error is None))
    for path in root.rglob(".*"):
        assert any(TEMPORARY.fullmatch(part) for part in path.relative_to(root).parts), f"{path} has another name"
    for folder in (root, *(path for path in root.rglob("*") if path.is_dir() and not path.is_symlink())):
        swept(folder)
    work.look(root, replace(seen, is_done=error is None))
    work.act(root)
    work.look(root, seen)
    assert not work.has_end or digest(root) == seen.end


def places(way: Failure, calls: Sequence[Call]) -> list[int]:
    """The calls that can fail in a way."""
    return [number for number, call in enumerate(calls) if not way.short or call.name == "write"]


def failures(work: Work, tmp_path: Path, *, step: int) -> int:
    """Makes each `step`-th call fail, in each way; returns how many failures that were."""
    source, root = tmp_path / "before", tmp_path / "root"
    source.mkdir()
    work.before(source)
    before = digest(source)
    shutil.copytree(source, root, symlinks=True)
    with watched(root) as undisturbed:
        work.act(root)
    seen = Seen(before, digest(root))
    work.look(root, seen)
    trials = [
        replace(way, at=number)
        for offset, way in enumerate(WAYS)
        for number in places(way, undisturbed.calls)[offset * step // len(WAYS) :: step]
    ]
    wrong = []
    for failure in trials:
        shutil.rmtree(root)
        shutil.copytree(source, root, symlinks=True)
        try:
            one_failure(work, root, failure, seen)
        except Exception as error:
            wrong.append(f"{failure} at {undisturbed.calls[failure.at]}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(line[:2000] for line in wrong)
    return len(trials)


@pytest.mark.faults
@pytest.mark.parametrize(
    ("name", "step"), [("save", 30), ("append", 9), ("export", 240), ("export-of-one-file", 16), ("publish", 160)]
)
def test_some_failing_system_calls_lose_nothing(name: str, step: int, tmp_path: Path) -> None:
    assert failures(WORKS[name], tmp_path, step=step) >= 3


@pytest.mark.timeout(1800)
@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("name", WORKS)
def test_all_failing_system_calls_lose_nothing(name: str, tmp_path: Path) -> None:
    print(name, failures(WORKS[name], tmp_path, step=1), "failures")
