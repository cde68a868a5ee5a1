"""SIGKILL at any moment, then the same command again: tensors, losses and samples equal an uninterrupted run."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from mezzotint import draws, fault_injection
from mezzotint.run_folder import RunFolder
from mezzotint.training.checkpoints import state


@pytest.fixture(scope="module")
def undisturbed(shared_world: Any) -> Any:
    began = time.monotonic()
    assert shared_world.wait(shared_world.fork("undisturbed")) == 0, shared_world.out("undisturbed")
    shared_world.seconds = time.monotonic() - began
    end = shared_world.end("undisturbed")
    assert end.step == 8
    assert [m[0] for m in end.metrics] == list(range(1, 9))
    return end


@pytest.mark.slow
def test_two_uninterrupted_runs_are_equal(shared_world: Any, undisturbed: Any) -> None:
    assert shared_world.wait(shared_world.fork("again")) == 0
    assert shared_world.end("again") == undisturbed


def kill_at_random_moments(world: Any, undisturbed: Any, seed: int, kills: int) -> None:
    name = f"killed-{seed}"
    for number in range(kills):
        after = draws.uniform(draws.key(seed, "kill", number)) * world.seconds
        child = world.fork(name)
        time.sleep(after)
        os.kill(child, signal.SIGKILL)
        world.wait(child)
    assert world.wait(world.fork(name)) == 0, world.out(name)
    assert world.end(name) == undisturbed, f"seed {seed}"
    leftovers = [p.name for p in (world.root / name / "checkpoints").iterdir() if p.name.startswith(".")]
    assert not leftovers


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.exhaustive) for seed in (2, 3))])
def test_kills_at_random_moments_resume_bit_exactly(shared_world: Any, undisturbed: Any, seed: int) -> None:
    kill_at_random_moments(shared_world, undisturbed, seed, kills=2)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.faults
@pytest.mark.parametrize("seed", range(100, 150))
def test_repeated_kills_at_random_moments_resume_bit_exactly(shared_world: Any, undisturbed: Any, seed: int) -> None:
    kill_at_random_moments(shared_world, undisturbed, seed, kills=3)


@pytest.mark.faults
@pytest.mark.parametrize(
    "points",
    [
        ["checkpoint.begin@2", "checkpoint.file@2", "checkpoint.renamed@1", "export.begin@1"],
        pytest.param(
            ["step.begin@1", "checkpoint.manifest@2", "checkpoint.prune@1", "export.renamed@1"],
            marks=pytest.mark.slow,
        ),
        pytest.param(["data.decode@9", "step.backward@5", "step.end@4"], marks=pytest.mark.slow),
        ["checkpoint.held@2"],
    ],
    ids=["saving", "saving-more", "stepping", "asynchronous-save"],
)  # fmt: skip
def test_kill_at_each_named_point_resumes_bit_exactly(shared_world: Any, undisturbed: Any, points: list[str]) -> None:
    """Killed at a point, resumed, killed at the next. The second save of a process is the first one after resuming."""
    name = f"killed-at-{points[0]}"
    folder = shared_world.root / name / "checkpoints"
    for point in points:
        child = shared_world.fork(name, fault=f"{point}:kill")
        assert shared_world.wait(child) == 128 + signal.SIGKILL, (point, shared_world.out(name))
        if point.startswith("checkpoint"):
            assert state.newest_valid(folder).path is not None, "at every instant there is a complete checkpoint"
    assert shared_world.wait(shared_world.fork(name)) == 0, shared_world.out(name)
    assert shared_world.end(name) == undisturbed


@pytest.mark.slow
@pytest.mark.faults
def test_kill_during_previews_resumes_bit_exactly(shared_world: Any, undisturbed: Any) -> None:
    previews = {"run__preview__every": 4, "sample__steps": 2, "sample__prompts": ["a picture"]}
    child = shared_world.fork("previews", fault="preview.begin@2:kill", **previews)
    assert shared_world.wait(child) == 128 + signal.SIGKILL, shared_world.out("previews")
    assert shared_world.wait(shared_world.fork("previews", **previews)) == 0, shared_world.out("previews")
    assert shared_world.end("previews") == undisturbed, "previews have random keys of their own"


DUE = {"run__steps": 4, "run__save__every": 2, "run__export__every": 2, "run__preview__every": 2}
DUE |= {"sample__steps": 1, "sample__prompts": ["a picture"], "optim__ema__rule": "ramp"}


@pytest.fixture(scope="module")
def outputs(shared_world: Any) -> dict[str, bytes]:
    assert shared_world.wait(shared_world.fork("due", **DUE)) == 0, shared_world.out("due")
    return read_outputs(shared_world.root / "due")


def read_outputs(run: Path) -> dict[str, bytes]:
    """Exported weights and previews of a run."""
    files = [*run.glob("exports/*/unet/*.safetensors"), *run.glob("samples/*/*.png")]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


@pytest.mark.faults
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(["preview.begin@2"], marks=pytest.mark.slow),
        ["checkpoint.renamed@1", "export.begin@1"],
        pytest.param(["export.renamed@1", "export.begin@2"], marks=pytest.mark.slow),
    ],
    ids=["preview", "export", "second-export"],
)
def test_export_or_preview_that_was_due_is_made_after_resuming(
    shared_world: Any, outputs: dict[str, bytes], points: list[str]
) -> None:
    """Killed between the checkpoint of step 2 and the end of its export, twice in a row, or during its previews."""
    name = f"owed-{points[0]}"
    run = shared_world.root / name
    for point in points:
        child = shared_world.fork(name, fault=f"{point}:kill", **DUE)
        assert shared_world.wait(child) == 128 + signal.SIGKILL, shared_world.out(name)
        assert not (run / "exports" / "step-00000002-ema").exists(), f"{point}: it was killed before that"
    assert shared_world.wait(shared_world.fork(name, **DUE)) == 0, shared_world.out(name)
    assert read_outputs(run) == outputs
    assert [e["step"] for e in RunFolder(run).events() if e["event"] == "exported"] == [2, 4]


@pytest.mark.slow
@pytest.mark.faults
def test_complete_export_is_not_made_again_after_resuming(shared_world: Any, outputs: dict[str, bytes]) -> None:
    child = shared_world.fork("whole", fault="step.backward@3:kill", **DUE)
    assert shared_world.wait(child) == 128 + signal.SIGKILL, shared_world.out("whole")
    assert shared_world.wait(shared_world.fork("whole", **DUE)) == 0, shared_world.out("whole")
    assert read_outputs(shared_world.root / "whole") == outputs
    events = RunFolder(shared_world.root / "whole").events()
    assert [e["step"] for e in events if e["event"] == "exported"] == [2, 4]


@pytest.mark.slow
@pytest.mark.faults
def test_kill_while_copying_the_export_is_made_good_after_resuming(shared_world: Any, undisturbed: Any) -> None:
    place = shared_world.root / "laid-elsewhere"
    child = shared_world.fork("published", fault="publish.file@2:kill", run__export__folder=place)
    assert shared_world.wait(child) == 128 + signal.SIGKILL, shared_world.out("published")
    assert not (place / "model_index.json").exists(), "a partial export cannot be opened"
    assert shared_world.wait(shared_world.fork("published", run__export__folder=place)) == 0
    assert (place / "model_index.json").exists()
    assert shared_world.end("published") == undisturbed


@pytest.mark.faults
def test_signal_saves_at_the_end_of_the_step_and_the_run_resumes(shared_world: Any, undisturbed: Any) -> None:
    for fault, status, step in (("step.backward@4:term", 143, 4), ("step.backward@3:int", 130, 7)):
        assert shared_world.wait(shared_world.fork("signals", fault=fault)) == status, shared_world.out("signals")
        newest = state.newest_valid(shared_world.root / "signals" / "checkpoints").path
        assert newest.name == f"step-{step:08}"
        assert "mezzotint train" in shared_world.out("signals").splitlines()[-1]
    assert shared_world.wait(shared_world.fork("signals")) == 0
    assert shared_world.end("signals") == undisturbed


@pytest.mark.slow
@pytest.mark.faults
def test_interrupt_within_an_epoch_saves_and_resumes_bit_exactly(shared_world: Any) -> None:
    by_epoch = {
        "run__steps": "null", "run__epochs": 2, "run__save__every": ["1 epoch", "60 minutes"],
        "run__export__every": "1 epoch", "run__log_every": 2, "data__epoch_seed": "add",
    }  # fmt: skip
    assert shared_world.wait(shared_world.fork("epochs", **by_epoch)) == 0, shared_world.out("epochs")
    child = shared_world.fork("epochs-cut", fault="step.backward@5:int", **by_epoch)
    assert shared_world.wait(child) == 130, shared_world.out("epochs-cut")
    newest = state.newest_valid(shared_world.root / "epochs-cut" / "checkpoints").path
    assert newest.name == "step-00000005", "in the middle of the second epoch"
    assert shared_world.wait(shared_world.fork("epochs-cut", **by_epoch)) == 0
    ends = [shared_world.end(name) for name in ("epochs", "epochs-cut")]
    assert ends[0].step == 6
    assert (ends[1].step, ends[1].tensors, ends[1].samples) == (ends[0].step, ends[0].tensors, ends[0].samples)
    exported = [sorted(p.name for p in (shared_world.root / n / "exports").iterdir()) for n in ("epochs", "epochs-cut")]
    assert exported[0] == exported[1]


@pytest.mark.faults
def test_sigusr1_saves_and_training_continues(shared_world: Any, undisturbed: Any) -> None:
    child = shared_world.fork("usr1", fault="step.begin@5:usr1", run__save__keep=9)
    assert shared_world.wait(child) == 0
    assert [p.name for p in state.list_checkpoints(shared_world.root / "usr1" / "checkpoints")] == [
        f"step-{n:08d}" for n in (8, 6, 5, 3)
    ]
    end = shared_world.end("usr1")
    assert (end.tensors, end.metrics) == (undisturbed.tensors, undisturbed.metrics)


@pytest.mark.faults
def test_unexpected_exception_prints_a_traceback_and_the_run_resumes(shared_world: Any, undisturbed: Any) -> None:
    child = shared_world.fork("bug", fault="step.end@5:raise")
    assert shared_world.wait(child) == 1
    assert "Traceback" in shared_world.out("bug")
    assert shared_world.wait(shared_world.fork("bug")) == 0
    assert shared_world.end("bug") == undisturbed


@pytest.mark.faults
def test_full_disk_at_a_scheduled_save_warns_and_training_continues(shared_world: Any, undisturbed: Any) -> None:
    child = shared_world.fork("full", fault="checkpoint.file@5:enospc")
    assert shared_world.wait(child) == 0
    assert "the checkpoint of step 6 could not be saved" in shared_world.out("full")
    assert shared_world.end("full") == undisturbed


@pytest.mark.faults
def test_checkpoint_with_a_flipped_bit_is_skipped_and_named(shared_world: Any, undisturbed: Any) -> None:
    world = shared_world
    waits = {"run__save__asynchronous": False}  # the checkpoint of step 6 is complete when step 8 begins
    assert world.wait(world.fork("flipped", fault="step.begin@8:kill", **waits)) == 137
    newest = state.newest_valid(world.root / "flipped" / "checkpoints").path
    content = bytearray((newest / "weights.safetensors").read_bytes())
    content[-7] ^= 8
    (newest / "weights.safetensors").write_bytes(content)
    assert world.wait(world.fork("flipped")) == 0
    assert "passed over step-00000006: weights.safetensors is damaged" in world.out("flipped")
    assert world.end("flipped") == undisturbed


def test_every_fault_injection_point_is_used_by_a_test() -> None:
    tests = Path(__file__).parents[1]
    text = "".join(path.read_text() for path in tests.rglob("test_*.py"))
    assert [point for point in fault_injection.POINTS if text.count(point) == 0] == []
