"""Two hundred kills at random moments, of runs of every kind and of commands that write: each resumes bit-exactly, and
leftovers are swept."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mezzotint import draws
from support.forked import fork

pytestmark = [pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(1200)]

SHORT = {"run__steps": 6, "run__save__every": 2}
RUNS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "workers-0": (24, 1, {}),
    "workers-2": (20, 1, {"data__workers": 2}),
    "cached": (20, 1, {"data__cache__latents": True, "data__cache__text": True}),
    "fp16": (12, 1, {"run__precision": "fp16", "data__resolution": 64}),
    "bf16": (12, 1, {"run__precision": "bf16", "data__resolution": 64}),
    "ema-on-cpu": (12, 1, {"optim__ema__device": "cpu", "run__save__best": True, "data__holdout__fraction": 0.2,
                           "run__validation__every": 2, "run__validation__timesteps": 1}),
    "two-processes": (20, 2, {}),
    "fsdp": (20, 2, {"run__runtime": "fsdp"}),
    "adapter": (16, 1, {"model__adapter__kind": "lora", "model__adapter__rank": 2}),
}  # fmt: skip
"""By name: number of kills, number of processes, and settings of the run."""
VERBS = {"cache": 10, "convert": 8, "merge": 8, "export": 10, "doctor": 8}
assert sum(kills for kills, _, _ in RUNS.values()) + sum(VERBS.values()) == 200
PATIENCE = 5.0
"""Seconds that the others of a process that was killed have."""
AT_ONCE = 5
"""So often is one run killed before it comes to its end."""


def moments(name: str) -> Iterator[float]:
    """Moments of a run's length, from 0 to 1, the same on each start."""
    number = 0
    while True:
        yield draws.uniform(draws.key(draws.text_key(name), "storm", number))
        number += 1


def killed(children: Sequence[int], after: float, which: int) -> list[int]:
    """Kills one of several processes after a while, and later, like a launcher, those that still run. Returns their
    exit statuses."""
    time.sleep(after)
    os.kill(children[which], signal.SIGKILL)
    codes: dict[int, int] = {}
    end = time.monotonic() + PATIENCE
    while len(codes) < len(children):
        for child in set(children) - codes.keys():
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                codes[child] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    return [128 - codes[child] if codes[child] < 0 else codes[child] for child in children]


def left(*folders: Path) -> list[str]:
    """Hidden names that were not swept."""
    return [str(path) for folder in folders for path in folder.rglob(".*.partial")]


def report(kind: str, kills: int, exact: int, swept: int) -> None:
    """A row of the table."""
    print(f"\nstorm\t{kind}\t{kills}\t{exact}\t{swept}", flush=True)


@pytest.mark.parametrize("name", RUNS)
def test_train_killed_at_random_moments_resumes_bit_exactly(shared_world: Any, name: str) -> None:
    world, (kills, processes, settings) = shared_world, RUNS[name]
    chosen = SHORT | settings

    def begin(run: str) -> list[int]:
        return world.fork_group(run, processes, **chosen) if processes > 1 else [world.fork(run, **chosen)]

    def finish(run: str) -> float:
        began = time.monotonic()
        assert [world.wait(child) for child in begin(run)] == [0] * processes, world.out(run)
        return time.monotonic() - began

    seconds = finish(f"{name}-whole")
    whole = world.end(f"{name}-whole")
    moment, done, number, exact = moments(name), 0, 0, 0
    while done < kills:
        number += 1
        run, of_run = f"{name}-{number}", 0
        while of_run < AT_ONCE and done + of_run < kills:
            share = next(moment)
            statuses = killed(begin(run), share * seconds, int(share * 1000) % processes)
            assert set(statuses) <= {0, 6, 137}, world.out(run)
            if 137 not in statuses:  # it was over before
                break
            of_run += 1
        finish(run)
        assert world.end(run) == whole, f"{run}, killed {of_run} times: {world.out(run)}"
        assert not left(world.root / run, world.root / "cache")
        shutil.rmtree(world.root / run)
        done, exact = done + of_run, exact + of_run
    report(name, done, exact, done)


def content(path: Path) -> str:
    """A digest of a file, or of all files below a folder."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(path)} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def storm(world: Any, kind: str, words: Sequence[str], result: Path, clear: Callable[[], None]) -> None:
    """Kills a command and starts it again, the requested number of times; its result is complete or absent. result:
    its output. clear: removes the output, so that it is written again."""

    def begin() -> int:
        return fork(words, world.root / f"{kind}.out", {})

    began = time.monotonic()
    assert world.wait(begin()) in (0, 2), world.out(kind)
    seconds = time.monotonic() - began
    whole, done = content(result), 0
    clear()
    for share in moments(kind):
        status = killed([begin()], share * seconds, 0)
        assert status in ([0], [2], [137]), world.out(kind)
        done += status == [137]
        if result.exists():
            assert content(result) == whole, "under its own name it is whole"
            clear()
        if done == VERBS[kind]:
            break
    assert world.wait(begin()) in (0, 2), world.out(kind)
    assert content(result) == whole
    assert not left(result.parent)
    report(kind, done, done, done)


@pytest.fixture
def model(shared_world: Any) -> Path:
    """A model's folder with weights: the export of a run."""
    folder = Path(shared_world.root / "made")
    if not folder.exists():
        assert shared_world.wait(shared_world.fork("made", run__steps=1)) == 0, shared_world.out("made")
    return folder / "exports" / "step-00000001"


def test_killed_convert_leaves_no_partial_file(shared_world: Any, model: Path) -> None:
    place = shared_world.root / "converted"
    place.mkdir()
    file = place / "model.safetensors"
    storm(shared_world, "convert", ["convert", str(model), str(file)], file, file.unlink)


def test_killed_merge_leaves_no_partial_file(shared_world: Any, model: Path) -> None:
    place = shared_world.root / "merged"
    place.mkdir()
    file, other = place / "model", model.with_name("step-00000001-ema")
    words = ["merge", str(model), str(other), str(file), "--weights=0.5,0.5"]
    storm(shared_world, "merge", words, file, lambda: shutil.rmtree(file))


def test_killed_export_leaves_no_partial_file(shared_world: Any, model: Path) -> None:
    exports = model.parent
    words = ["train", *shared_world.words("made", run__steps=1)]

    def clear() -> None:
        for folder in exports.iterdir():
            shutil.rmtree(folder)

    storm(shared_world, "export", words, exports / "step-00000001", clear)


def test_killed_doctor_leaves_no_partial_file(shared_world: Any) -> None:
    place = shared_world.root / "page"
    place.mkdir()
    words = ["doctor", str(shared_world.images), f"data.cache.path={shared_world.root / 'cache'}"]
    file = place / "doctor.html"
    storm(shared_world, "doctor", [*words, f"--html={file}"], file, file.unlink)


def test_killed_cache_is_completed_later(shared_world: Any) -> None:
    """The filled cache is complete, and a run with it has the same bits."""
    world, place = shared_world, shared_world.root / "filled"
    chosen = SHORT | {"data__cache__latents": True, "data__cache__text": True, "run__steps": 2}
    assert world.wait(world.fork("uncut", **chosen)) == 0, world.out("uncut")
    chosen |= {"data__cache__path": place}
    began = time.monotonic()
    assert world.wait(world.fork("filling", "cache", **chosen)) == 0, world.out("filling")
    seconds, done = time.monotonic() - began, 0
    shutil.rmtree(place)
    for share in moments("cache"):
        (status,) = killed([world.fork("filling", "cache", **chosen)], share * seconds, 0)
        if status != 137:
            assert status == 0, world.out("filling")
            shutil.rmtree(place)
        done += status == 137
        if done == VERBS["cache"]:
            break
    assert world.wait(world.fork("filling", "cache", **chosen)) == 0, world.out("filling")
    assert not left(place)
    assert world.wait(world.fork("cut", **chosen)) == 0, world.out("cut")
    assert world.end("cut") == world.end("uncut")
    report("cache", done, done, done)
