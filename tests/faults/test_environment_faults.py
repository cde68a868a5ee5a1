"""Faults in the environment of a run of one process: clock, terminal, slow disk, memory, unwritable folders; and a kill
before its first checkpoint."""

from __future__ import annotations

import io
import itertools
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import UNet2DConditionModel

from mezzotint import outside
from mezzotint.cli import main
from mezzotint.families.sd import Family
from mezzotint.run_folder import RunFolder
from mezzotint.settings.sections.model import ModelSettings
from mezzotint.training.checkpoints import background_save, state
from mezzotint.training.step import TrainStep
from support.io_calls import Failure, watched
from support.model_export import load_model
from support.run_folders import tensors_of
from support.trainers import short_of_memory

pytestmark = pytest.mark.faults
SHORT = {"run__steps": 4, "run__save__every": 2}


@pytest.fixture(scope="module")
def undisturbed(shared_world: Any) -> Any:
    assert shared_world.wait(shared_world.fork("undisturbed", **SHORT)) == 0, shared_world.out("undisturbed")
    return shared_world.end("undisturbed")


@pytest.mark.slow
def test_kill_before_the_first_checkpoint_starts_again_with_a_message(shared_world: Any, undisturbed: Any) -> None:
    world = shared_world
    assert world.wait(world.fork("first", fault="step.begin@1:kill", **SHORT)) == 137, world.out("first")
    assert "ended before its first checkpoint" not in world.out("first")
    assert world.wait(world.fork("first", **SHORT)) == 0, world.out("first")
    assert "the previous start ended before its first checkpoint; starting at step 0 of 4" in world.out("first")
    assert world.end("first") == undisturbed


@pytest.mark.slow
def test_jumping_clock_changes_nothing(shared_world: Any, undisturbed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day back, a year forward, to 1970, at each call; saves are due by steps and by minutes."""
    world, plain, jumps = shared_world, time.time, [-86_400.0, 366 * 86_400.0, -time.time() + 5]
    calls = itertools.count(1)

    def jumping() -> float:
        return plain() + jumps[next(calls) % 3]

    with monkeypatch.context() as patched:
        patched.setattr(time, "time", jumping)
        patched.setattr(time, "time_ns", lambda: int(jumping() * 1e9))
        timed = SHORT | {"run__save__every": ["2 steps", "60 minutes"], "run__save__keep": 9}
        assert world.wait(world.fork("clock", fault="step.backward@3:term", **timed)) == 143, world.out("clock")
        assert world.wait(world.fork("clock", **timed)) == 0, world.out("clock")
    end = world.end("clock")
    assert (end.tensors, end.metrics, end.samples) == (undisturbed.tensors, undisturbed.metrics, undisturbed.samples)
    steps = [state.step_of(path) for path in state.list_checkpoints(world.root / "clock" / "checkpoints")]
    assert steps == [4, 3, 2], "saved by the interval in steps and the signal, not by minutes"


def test_run_and_log_are_complete_after_sighup_and_a_closed_pipe(shared_world: Any, undisturbed: Any) -> None:
    """The terminal is closed (SIGHUP), and the pipe of the output has no reader."""
    world, folder = shared_world, shared_world.root / "closed"
    words = world.words("closed", **SHORT)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 70
        try:
            os.close(reader)
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            os.environ["MEZZOTINT_FAULT"] = "step.begin@2:sleep=0.5"
            torch.set_num_threads(1)
            status = main(["train", *words])
        finally:
            os._exit(status)
    os.close(writer)
    os.close(reader)
    deadline = time.monotonic() + 120
    while not outside.read_lines(folder / "history.jsonl") and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(child, signal.SIGHUP)
    assert world.wait(child) == 0, (folder / "run.log").read_text()
    assert (world.end("closed").tensors, world.end("closed").metrics) == (undisturbed.tensors, undisturbed.metrics)
    log = (folder / "run.log").read_text()
    assert "step 4/4" in log
    assert "checkpoints  " in log, "its last line"


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [2, pytest.param(10, marks=pytest.mark.exhaustive)])
def test_run_continues_after_sigstop_and_counts_the_pause(shared_world: Any, undisturbed: Any, seconds: int) -> None:
    world, name = shared_world, f"stopped-{seconds}"
    folder = world.root / name
    child = world.fork(name, fault="step.begin@3:stop", **SHORT)
    assert os.WIFSTOPPED(os.waitpid(child, os.WUNTRACED)[1]), world.out(name)
    time.sleep(seconds)
    os.kill(child, signal.SIGCONT)
    assert world.wait(child) == 0, world.out(name)
    assert world.end(name) == undisturbed
    lines = outside.read_lines(folder / "metrics.jsonl")
    assert sum(line["seconds_since"] for line in lines) > seconds, "the pause is counted"
    assert all(0 < line["images_per_s"] < 10_000 for line in lines)
    assert min(line["images_per_s"] for line in lines) < 4 / (seconds - 1), "the speed of that step includes the pause"


@pytest.mark.parametrize(("kind", "code"), [("file", "E1703"), ("below-a-file", "E1703"), ("read-only", "E1702")])
def test_unwritable_run_folder_is_refused_at_once(
    world: Any, kind: str, code: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Family, "load", lambda *words: pytest.fail("a model was loaded"))
    place = world.root / "place"
    if kind != "read-only":
        place.write_text("mine")
    folder = place / "run" if kind == "below-a-file" else place
    began = time.process_time()
    read_only = Failure(30, at=0, lasts=True)  # EROFS: root may write whatever the permissions
    with watched(place, read_only if kind == "read-only" else None):
        assert world.train("run", run__folder=folder) in (2, 4)
    assert time.process_time() - began < 10, "nothing was computed"
    assert f"error[{code}]" in capsys.readouterr().err
    assert kind == "read-only" or place.read_text() == "mine"


CALLS = ("stat", "lstat", "open", "scandir", "listdir", "access", "mkdir", "replace", "unlink", "fsync", "link")


class FileCalls:
    """Counts calls on files and folders. `about`: those whose path starts with one of these."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def about(self, *places: Path) -> int:
        return sum(any(path.startswith(str(place)) for place in places) for path in self.paths)


@pytest.fixture
def file_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileCalls]:
    counted = FileCalls()

    def counting(plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **options: Any) -> Any:
            place = words[0] if words else ""
            counted.paths.append(os.fsdecode(place) if isinstance(place, (str, bytes, os.PathLike)) else "")
            return plain(*words, **options)

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, counting(getattr(os, name)))
    monkeypatch.setattr(io, "open", counting(io.open))
    monkeypatch.setattr("builtins.open", counting(open))
    return counted


@pytest.mark.slow
def test_number_of_file_calls_suits_a_slow_disk(world: Any, file_calls: FileCalls) -> None:
    """Calls are counted: at 50 ms each, a start with 24 images takes less than ten seconds, and a step only reads its
    own images and a few files."""
    (world.root / "more").mkdir()
    for number in range(24):
        shutil.copyfile(world.images / f"{number % 10:02d}.png", world.root / "more" / f"{number}.png")
        (world.root / "more" / f"{number}.txt").write_text(f"number {number}")
    world.images = world.root / "more"
    words = {"data__path": world.images, "run__save__every": 1000, "run__log_samples": True}
    assert world.train("short", **words, run__steps=2) == 0
    short = file_calls.about(world.images, world.root / "short")
    images = file_calls.about(world.images)
    file_calls.paths.clear()
    assert world.train("long", **words, run__steps=8) == 0
    a_step = (file_calls.about(world.images, world.root / "long") - short) / 6
    assert images * 0.05 < 10, f"{images} calls for 24 images"
    assert a_step < 20, f"{a_step} calls a step of four images"


def test_out_of_memory_for_one_sample_suggests_settings(
    world: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(TrainStep, "loss", short_of_memory(lambda batch: True))
    assert world.train("run", run__steps=2) == 5
    output = capsys.readouterr()
    assert "error[E1751]" in output.err
    assert "run.gradient_checkpointing" in output.err
    assert "continuing with micro-batches of 1" in output.out


@pytest.mark.slow
def test_out_of_memory_for_the_copy_of_a_save_writes_without_it(
    world: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert world.train("plain", **SHORT) == 0

    def none(*words: Any, **options: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")

    monkeypatch.setattr(background_save, "Snapshot", none)
    capsys.readouterr()
    assert world.train("short", **SHORT) == 0
    warning = "not enough memory to copy the checkpoint (CUDA out of memory. Tried to allocate 1 GiB)"
    assert f"{warning}: it is written piece by piece" in capsys.readouterr().out
    assert world.end("short") == world.end("plain")


@pytest.mark.parametrize("form", ["folder", "file"])
def test_export_equals_the_trained_model(world: Any, form: str) -> None:
    settings = {"run__export__single_file": True, "optim__ema__rule": "none"} if form == "file" else {}
    assert world.train("run", run__steps=1, **settings) == 0
    place = world.root / "run" / "exports" / ("step-00000001.safetensors" if form == "file" else "step-00000001")
    again = load_model(Family, ModelSettings(path=place, config=world.model if form == "file" else None))
    weights = tensors_of(world.root / "run")
    read = {f"w/denoiser/{name}": value for name, value in again.parts()["denoiser"].state_dict().items()}
    assert read.keys() == {name for name in weights if name.startswith("w/")}
    assert all(torch.equal(read[name], weights[name]) for name in read)
    if form == "folder":
        theirs: Any = UNet2DConditionModel.from_pretrained(str(place / "unet"), local_files_only=True)
        mine = again.parts()["denoiser"].state_dict()
        assert all(torch.equal(tensor, mine[name]) for name, tensor in theirs.state_dict().items())
    assert RunFolder(world.root / "run").attempts() == 1
