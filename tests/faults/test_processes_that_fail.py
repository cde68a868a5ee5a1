"""Failures of one of two processes: both exit together, none waits forever, and the message names the failed one. Also
recovery and best checkpoints in two processes."""

from __future__ import annotations

import math
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from mezzotint import outside
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.shared.launch import Launch
from mezzotint.training.checkpoints import state
from mezzotint.training.loop import Trainer
from mezzotint.training.step import TrainStep
from support.divergence import SETTINGS as DIVERGING
from support.divergence import events
from support.forked import variables
from support.run_folders import assert_alike, logged, tensors_of
from support.trainers import short_of_memory

pytestmark = [pytest.mark.distributed, pytest.mark.faults]
SHORT = {"run__steps": 4, "run__save__every": 2, "run__save__asynchronous": False, "run__timeout_seconds": 120}


def rank() -> int:
    """Rank of a forked process, for patched functions."""
    return Launch.read().rank


def run_two(world: Any, name: str, **settings: Any) -> list[int]:
    """Exit statuses of two processes."""
    return [world.wait(child) for child in world.fork_group(name, 2, **settings)]


@pytest.fixture(scope="module")
def two_processes(shared_world: Any) -> Path:
    assert run_two(shared_world, "two", **SHORT) == [0, 0], shared_world.out("two")
    return Path(shared_world.root / "two")


def nan_loss(when: Callable[[Trainer, int], bool]) -> Callable[..., Any]:
    """A replacement of `TrainStep.loss` that returns NaN where `when` is true."""
    plain = TrainStep.loss

    def loss(trainer: Trainer, batch: Any, step: int) -> Any:
        result, level = plain(trainer, batch, step)
        if when(trainer, step):
            result.per_sample.mul_(math.nan)
            result.total.mul_(math.nan)
        return result, level

    return loss


@pytest.mark.slow
def test_exception_in_one_process_ends_both_soon_and_the_run_resumes(shared_world: Any, two_processes: Path) -> None:
    world = shared_world
    began = time.monotonic()
    children = world.fork_group("bug", 2, faults={1: "step.backward@3:raise"}, **SHORT)
    assert [world.wait(child) for child in children] == [6, 1], world.out("bug")
    assert time.monotonic() - began < 100, "it did not wait for its timeout"
    assert "Traceback" in world.out("bug")
    assert run_two(world, "bug", **SHORT) == [0, 0], world.out("bug")
    assert world.end("bug") == world.end("two")


@pytest.mark.slow
def test_non_finite_loss_of_one_process_is_skipped_or_ends_both(
    shared_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = shared_world
    monkeypatch.setattr(TrainStep, "loss", nan_loss(lambda trainer, step: step == 1 and rank() == 1))
    assert run_two(world, "skips", **SHORT) == [0, 0], world.out("skips")
    bad = outside.read_lines(world.root / "skips" / "bad_steps.jsonl")
    assert sorted((line["step"], line["rank"]) for line in bad) == [(2, 0), (2, 1)]
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors_of(world.root / "skips").values())
    monkeypatch.setattr(TrainStep, "loss", nan_loss(lambda trainer, step: step > 1 and rank() == 1))
    assert run_two(world, "ends", **SHORT, run__max_nonfinite_steps=1) == [3, 3], world.out("ends")
    assert state.newest_valid(world.root / "ends" / "checkpoints").path.name == "step-00000002"


@pytest.mark.slow
def test_out_of_memory_in_one_process_halves_the_micro_batch_of_both(
    shared_world: Any, two_processes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, plain = shared_world, TrainStep.loss
    short = short_of_memory(lambda batch: batch.size > 1)
    monkeypatch.setattr(TrainStep, "loss", lambda *given: (short if rank() == 1 else plain)(*given))
    assert run_two(world, "short", **SHORT) == [0, 0], world.out("short")
    assert "continuing with micro-batches of 1 on every process and the same draws" in world.out("short")
    short_samples, samples = (world.end(name).samples for name in ("short", "two"))
    with_halved = [[outside.parse_json(line)[key] for key in ("keys", "timesteps")] for line in short_samples]
    assert with_halved == [[outside.parse_json(line)[key] for key in ("keys", "timesteps")] for line in samples]
    assert logged(world.root / "short") == pytest.approx(logged(two_processes), rel=1e-5)
    assert_alike(tensors_of(world.root / "short"), tensors_of(two_processes))
    none = short_of_memory(lambda batch: True)
    monkeypatch.setattr(TrainStep, "loss", lambda *given: (none if rank() == 1 else plain)(*given))
    assert run_two(world, "none", **SHORT) == [5, 5], world.out("none")


@pytest.mark.slow
def test_hanging_process_is_named_with_its_step_after_the_timeout(shared_world: Any) -> None:
    world = shared_world
    settings = SHORT | {"run__timeout_seconds": 3}
    first, second = world.fork_group("hangs", 2, faults={1: "step.backward@3:sleep=40"}, **settings)
    began = time.monotonic()
    status = world.wait(first)
    waited = time.monotonic() - began
    os.kill(second, signal.SIGKILL)
    world.wait(second)
    assert status == 6, world.out("hangs")
    assert waited < 35
    assert "process 0 lost process 1 of this run, which does not answer; " in world.out("hangs")
    assert "process 1 was last after the passes of step 3" in world.out("hangs")
    assert state.newest_valid(world.root / "hangs" / "checkpoints").path.name == "step-00000002"


@pytest.mark.slow
def test_kill_of_rank_0_during_a_save_ends_rank_1_and_the_run_resumes(shared_world: Any, two_processes: Path) -> None:
    world = shared_world
    children = world.fork_group("saving", 2, faults={0: "checkpoint.file@5:kill"}, **SHORT)
    assert [world.wait(child) for child in children] == [137, 6], world.out("saving")
    assert "process 1 lost process 0 of this run, " in world.out("saving")
    newest = state.newest_valid(world.root / "saving" / "checkpoints")
    assert newest.path.name == "step-00000002"
    assert not newest.passed_over
    assert run_two(world, "saving", **SHORT) == [0, 0], world.out("saving")
    assert world.end("saving") == world.end("two")


def test_port_in_use_is_named(shared_world: Any) -> None:
    world = shared_world
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert world.wait(world.fork("port", env=variables(0, port), **SHORT)) == 2, world.out("port")
    assert "error[E1712]" in world.out("port")
    assert f"port {port}" in world.out("port")
    assert not RunFolder(world.root / "port").history.exists()


@pytest.mark.slow
def test_roll_back_of_two_processes_survives_a_kill(shared_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the second process has a non-finite loss."""
    world = shared_world
    monkeypatch.setattr(TrainStep, "loss", nan_loss(lambda trainer, step: step in (5, 6) and rank() == 1))
    assert run_two(world, "back", **DIVERGING) == [0, 0], world.out("back")
    (event,) = events(world.root / "back")
    assert (event["to"], event["at"], event["number"]) == (4, 7, 1)
    children = world.fork_group("killed", 2, faults={0: "roll-back.recorded@1:kill"}, **DIVERGING)
    assert [world.wait(child) for child in children] == [137, 6], world.out("killed")
    assert run_two(world, "killed", **DIVERGING) == [0, 0], world.out("killed")
    assert world.end("killed") == world.end("back")
    assert len(events(world.root / "killed")) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "asynchronous",
    [pytest.param(False, marks=pytest.mark.exhaustive), True],
    ids=["synchronous", "asynchronous"],
)
def test_non_finite_weight_found_by_the_save_rolls_both_back(
    shared_world: Any, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    world, plain, run = shared_world, Trainer.tensors, f"spoilt-{asynchronous}"

    def tensors(trainer: Trainer) -> dict[str, torch.Tensor]:
        saved = plain(trainer)
        if trainer.progress.step == 4 and not trainer.progress.rolled_back:
            name = next(name for name in saved if name.startswith("w/"))
            saved[name] = torch.full_like(saved[name], math.nan)
        return saved

    monkeypatch.setattr(Trainer, "tensors", tensors)
    settings = DIVERGING | {"run__save__asynchronous": asynchronous, "run__steps": 7}
    assert run_two(world, run, **settings) == [0, 0], world.out(run)
    (event,) = events(world.root / run)
    assert (event["to"], event["number"]) == (2, 1)
    newest = state.newest_valid(world.root / run / "checkpoints")
    assert newest.path.name == "step-00000007"
    assert not newest.passed_over


@pytest.mark.slow
def test_best_checkpoint_of_two_processes_is_that_of_one(shared_world: Any) -> None:
    world = shared_world
    settings = SHORT | {
        "run__save__best": True, "data__holdout__fraction": 0.2, "run__validation__every": 1, "run__save__keep": 1,
        "run__validation__timesteps": 1,
    }  # fmt: skip
    assert run_two(world, "best", **settings) == [0, 0], world.out("best")
    assert world.wait(world.fork("best-of-one", **settings)) == 0, world.out("best-of-one")
    names = [(world.root / name / "checkpoints" / "best").readlink().name for name in ("best", "best-of-one")]
    assert names[0] == names[1]
    assert state.find_damage(world.root / "best" / "checkpoints" / "best") is None
    children = world.fork_group("best-killed", 2, faults={0: "checkpoint.best@2:kill"}, **settings)
    assert [world.wait(child) for child in children] == [137, 6], world.out("best-killed")
    assert run_two(world, "best-killed", **settings) == [0, 0], world.out("best-killed")
    assert (world.root / "best-killed" / "checkpoints" / "best").readlink().name == names[0]
