"""The same draws on any number of processes, workers and micro-batches; and launched as people launch."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mezzotint import outside
from mezzotint.run_folder import RunFolder
from mezzotint.training.checkpoints import state
from support.forked import free_port
from support.run_folders import logged

SETTINGS = {"run__steps": 6, "optim__accumulation": 2, "data__remainder": "short", "data__batch_size": 5}


def by_step(folder: Path, processes: int) -> list[list[tuple[str, float]]]:
    """For each step, the samples of all processes with their timesteps, in an order that no process decides."""
    samples: dict[int, list[tuple[str, float]]] = {}
    for rank in range(processes):
        for line in outside.read_lines(folder / "logs" / f"samples.rank{rank}.jsonl"):
            samples.setdefault(line["step"], []).extend(zip(line["keys"], line["timesteps"], strict=True))
    return [sorted(samples[step]) for step in sorted(samples)]


@pytest.fixture(scope="module")
def alone(shared_world: Any) -> Path:
    assert shared_world.wait(shared_world.fork("alone", **SETTINGS)) == 0, shared_world.out("alone")
    return Path(shared_world.root / "alone")


@pytest.fixture(scope="module")
def two(shared_world: Any) -> Path:
    for child in shared_world.fork_group("two", 2, **SETTINGS):
        assert shared_world.wait(child) == 0, shared_world.out("two")
    return Path(shared_world.root / "two")


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [{"data__workers": 2}, *(pytest.param({"run__micro_batch": n}, marks=pytest.mark.slow) for n in (1, 2))],
)
def test_workers_and_micro_batches_change_no_draw(shared_world: Any, alone: Path, change: dict[str, Any]) -> None:
    name = "-".join(f"{k}{v}" for k, v in change.items())
    assert shared_world.wait(shared_world.fork(name, **SETTINGS, **change)) == 0, shared_world.out(name)
    other = shared_world.root / name
    assert by_step(other, 1) == by_step(alone, 1)
    assert logged(other) == pytest.approx(logged(alone), rel=2e-5)
    if "data__workers" in change:
        assert logged(other) == logged(alone)


@pytest.mark.distributed
def test_two_processes_draw_the_same_and_one_goes_on_alone(shared_world: Any, alone: Path, two: Path) -> None:
    world = shared_world
    assert by_step(two, 2) == by_step(alone, 1)
    assert logged(two) == pytest.approx(logged(alone), rel=2e-5)

    for child in world.fork_group("then-one", 2, **SETTINGS | {"run__steps": 3}):
        assert world.wait(child) == 0, world.out("then-one")
    parts = {path.name for path in state.newest(world.root / "then-one" / "checkpoints").path.glob("*.safetensors")}
    assert parts >= {"weights-00001-of-00002.safetensors", "weights-00002-of-00002.safetensors"}
    assert world.wait(world.fork("then-one", **SETTINGS)) == 0, world.out("then-one")
    assert logged(world.root / "then-one") == pytest.approx(logged(alone), rel=2e-5)
    resumed = [e for e in outside.read_lines(world.root / "then-one" / "history.jsonl") if e["event"] == "resumed"]
    assert "world size: 2 → 1" in resumed[0]["changes"]
    assert "not bit-exact from here" in world.out("then-one")


@pytest.mark.distributed
@pytest.mark.faults
def test_sigterm_to_one_of_two_saves_the_same_step_and_both_leave(shared_world: Any, two: Path) -> None:
    world = shared_world
    children = world.fork_group("term", 2, faults={1: "step.begin@3:term"}, **SETTINGS)
    assert [world.wait(child) for child in children] == [143, 143], world.out("term")
    assert state.newest(world.root / "term" / "checkpoints").path.name == "step-00000003"
    for child in world.fork_group("term", 2, **SETTINGS):
        assert world.wait(child) == 0, world.out("term")
    assert logged(world.root / "term") == logged(two)


@pytest.mark.distributed
@pytest.mark.faults
def test_a_killed_process_ends_the_other_soon_and_by_name(shared_world: Any) -> None:
    world = shared_world
    children = world.fork_group("lost", 2, faults={1: "step.backward@4:kill"}, **SETTINGS)
    assert world.wait(children[1]) == 128 + signal.SIGKILL
    began = time.monotonic()
    assert world.wait(children[0]) == 6, world.out("lost")
    assert time.monotonic() - began < 300, "it waited for the other until gloo's own patience was over"
    said = world.out("lost")
    assert "process 0 lost process 1 of this run, which has ended; " in said
    assert "GLHF" not in said, "torch's own words help nobody"
    assert "closed by peer" not in said


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("point", ["checkpoint.begin@2", "checkpoint.file@2", "checkpoint.manifest@2"])
def test_a_kill_while_each_writes_its_part_leaves_the_checkpoint_before(
    shared_world: Any, alone: Path, rank: int, point: str
) -> None:
    if (rank, point) == (1, "checkpoint.manifest@2"):
        pytest.skip("the first alone writes it")
    world, name = shared_world, f"part-{rank}-{point.partition('@')[0]}"
    settings = SETTINGS | {"run__save__every": 2, "run__save__asynchronous": False}
    file = point.replace("file@2", "file@4")  # three files each
    children = world.fork_group(name, 2, faults={rank: f"{file}:kill"}, **settings)
    assert world.wait(children[rank]) == 128 + signal.SIGKILL, world.out(name)
    assert world.wait(children[1 - rank]) == 6, world.out(name)
    checkpoints = world.root / name / "checkpoints"
    assert [path.name for path in state.listed(checkpoints)] == ["step-00000002"]
    assert state.damage(checkpoints / "step-00000002") is None
    for child in world.fork_group(name, 2, **settings):
        assert world.wait(child) == 0, world.out(name)
    assert logged(world.root / name) == pytest.approx(logged(alone), rel=2e-5)
    assert not list(checkpoints.glob(".*")), "nothing half is left"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
@pytest.mark.parametrize("rank", [0, 1])
def test_a_kill_while_training_goes_on_beside_a_save_changes_no_bit(shared_world: Any, two: Path, rank: int) -> None:
    """Of two processes that each write a part one is killed, two steps after the save began, with a file written. Of
    the save before, two files are written when training has gone on, which must not be seen in them."""
    world, name = shared_world, f"behind-{rank}"
    settings = SETTINGS | {"run__save__every": 2, "run__save__keep": 1}
    assert "run__save__asynchronous" not in settings, "as everybody has it"
    files = "checkpoint.file@1:sleep=2,checkpoint.file@4:sleep=100"  # three files each
    faults = {rank: f"{files},step.backward@6:sleep=2,step.backward@6:kill"}
    began = time.monotonic()
    children = world.fork_group(name, 2, faults=faults, **settings)
    assert world.wait(children[rank]) == 128 + signal.SIGKILL, world.out(name)
    assert time.monotonic() - began < 100, "no step waited for the file"
    assert world.wait(children[1 - rank]) == 6, world.out(name)
    checkpoints = world.root / name / "checkpoints"
    assert [path.name for path in state.listed(checkpoints)] == ["step-00000002"]
    assert state.damage(checkpoints / "step-00000002") is None
    (partial,) = checkpoints.glob(".*")
    written = {path.name for path in partial.glob("*.safetensors")}
    mine = {file for file in written if f"-{rank + 1:05d}-of-" in file}
    assert len(mine) == 1, "one of three files"
    for child in world.fork_group(name, 2, **settings):
        assert world.wait(child) == 0, world.out(name)
    assert world.end(name) == world.end("two")
    resumed = [e for e in outside.read_lines(world.root / name / "history.jsonl") if e["event"] == "resumed"]
    assert [event["step"] for event in resumed] == [2]
    assert [path.name for path in state.listed(checkpoints)] == ["step-00000006"]
    assert not list(checkpoints.glob(".*")), "nothing half is left"


@pytest.mark.distributed
def test_more_processes_than_samples_are_refused(shared_world: Any) -> None:
    for child in shared_world.fork_group("many", 2, **SETTINGS | {"data__batch_size": 1}):
        assert shared_world.wait(child) == 2
    assert "data.batch_size is 1, too few for 2 processes" in shared_world.out("many")


def run_as_main(module: str, words: list[str]) -> NoReturn:
    """What `python -m MODULE` does, in this process, which ends; the processes that a launcher starts are new ones."""
    status = 1
    try:
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            os.environ.pop(name, None)
        os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
        sys.argv = [module, *words]
        runpy.run_module(module, run_name="__main__")
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        os._exit(status)


# both start interpreters of their own, which takes longer than all else here; what they say to them, other tests say
@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize(
    "launcher",
    [
        ["torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "--master-port"],
        ["accelerate.commands.accelerate_cli", "launch", "--multi_gpu", "--num_processes", "2", "--num_machines",
         "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port"],
    ],
    ids=["torchrun", "accelerate"],
)  # fmt: skip
def test_under_the_launchers_that_people_use(shared_world: Any, alone: Path, launcher: list[str]) -> None:
    name, (module, *options) = launcher[0].split(".")[0], launcher
    words = shared_world.words(name, **SETTINGS | {"run__steps": 2})
    child = os.fork()
    if not child:
        run_as_main(module, [*options, str(free_port()), "-m", "mezzotint", "train", *words])
    assert shared_world.wait(child) == 0
    folder = shared_world.root / name
    assert json.loads((folder / "environment.json").read_text())["processes"] == 2
    assert logged(folder) == pytest.approx(logged(alone)[:2], rel=2e-5)


def under_torchrun(
    world: Any, name: str, *options: str, backend: str = "static", fault: str = "", **settings: Any
) -> int:
    """Starts torchrun with two processes in a process group of its own; what they print is added to NAME.out. backend:
    by which they meet, of torchrun's own."""
    words = world.words(name, **SETTINGS | settings)
    child = os.fork()
    if not child:
        os.setsid()
        handle = os.open(world.root / f"{name}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.environ["MEZZOTINT_FAULT"] = fault
        port = str(free_port())
        place = ["--master-addr", "127.0.0.1", "--master-port", port]
        if backend != "static":
            place = ["--rdzv-backend", backend, "--rdzv-endpoint", f"localhost:{port}", "--local-addr", "127.0.0.1"]
        line = [*place, "--nproc-per-node", "2", *options, "-m", "mezzotint", "train", *words]
        run_as_main("torch.distributed.run", line)
    return child


OFTEN_SAVED = {"run__steps": 10, "run__save__every": 2, "run__save__asynchronous": False}


@pytest.fixture(scope="module")
def undisturbed(shared_world: Any) -> str:
    """The name of a run of two processes that nobody kills."""
    children = shared_world.fork_group("undisturbed-two", 2, **SETTINGS | OFTEN_SAVED)
    assert [shared_world.wait(child) for child in children] == [0, 0], shared_world.out("undisturbed-two")
    return "undisturbed-two"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
@pytest.mark.parametrize(("backend", "killed_at"), [("static", [8]), ("c10d", [4, 8])], ids=["static", "c10d"])
def test_torchrun_starts_all_again_when_one_is_killed_and_the_end_is_the_same(
    shared_world: Any, undisturbed: str, backend: str, killed_at: list[int]
) -> None:
    """What the processes of one attempt have left where they meet does not disturb those of the next."""
    world, name = shared_world, f"elastic-{backend}"
    # the first process alone comes to this point, and in the last attempt only once
    fault = f"checkpoint.renamed@{killed_at[0] // 2}:kill"
    child = under_torchrun(world, name, "--max-restarts", "2", backend=backend, fault=fault, **OFTEN_SAVED)
    assert world.wait(child) == 0, world.out(name)
    assert world.end(name) == world.end(undisturbed)
    resumed = [e for e in outside.read_lines(world.root / name / "history.jsonl") if e["event"] == "resumed"]
    assert [event["step"] for event in resumed] == killed_at, world.out(name)
    assert RunFolder(world.root / name).attempts() == len(killed_at) + 1, "the history shows all"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
def test_sigterm_to_the_launchers_group_saves_once_and_the_same_line_goes_on(shared_world: Any) -> None:
    world, name = shared_world, "group-term"
    child = under_torchrun(world, name, run__steps=400, run__save__every=1000)
    metrics, checkpoints = world.root / name / "metrics.jsonl", world.root / name / "checkpoints"
    end = time.monotonic() + 200
    while not outside.read_lines(metrics):
        assert time.monotonic() < end, world.out(name)
        time.sleep(0.2)
    of_training = ["pgrep", "-P", str(child), "-f", "^[^ ]*python[^ ]* -u -m mezzotint"]  # as the docs name them
    workers = [int(pid) for pid in subprocess.check_output(of_training).split()]
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGUSR1)
    while not any(checkpoints.glob("step-*")):
        assert time.monotonic() < end, world.out(name)
        time.sleep(0.2)
    os.killpg(child, signal.SIGTERM)
    assert world.wait(child) == 1, "torchrun's own status, whatever the processes said"
    newest = state.newest(checkpoints).path
    assert len(list(checkpoints.glob("step-*"))) == 2, "one for each signal"
    assert f"stopped at step {int(newest.name[5:])}, saved" in world.out(name)
    events = [e for e in outside.read_lines(world.root / name / "history.jsonl") if e["event"] == "stopped"]
    assert [(e["step"], e["signal"]) for e in events] == [(int(newest.name[5:]), signal.SIGTERM)]
    more = {"run__steps": int(newest.name[5:]) + 1, "run__allow_change": "[run.steps]"}
    for child in world.fork_group(name, 2, **SETTINGS | more):
        assert world.wait(child) == 0, world.out(name)
    assert len(logged(world.root / name)) == more["run__steps"]


@pytest.mark.slow
@pytest.mark.distributed
def test_all_processes_hear_when_previews_are_due_and_measure_sets_of_their_own(shared_world: Any) -> None:
    world = shared_world
    file = world.root / "prompts.json"
    samples = [{"prompt": "a red circle"}, {"random_caption": True, "seed": -1}]
    head = {"at_start": False, "every_batches": 4, "guidance": 1, "steps": 1}
    file.write_text(json.dumps(head | {"samples": samples}))
    settings = SETTINGS | {
        "run__preview__every": 1, "run__preview__weights": "raw", "sample__prompt_file": file,
        "run__validation__every": 6, "run__validation__training_fraction": 0.3,
        "data__holdout__path": world.pictures, "data__cache__latents": True, "data__cache__text": True,
    }  # fmt: skip
    for child in world.fork_group("previewed", 2, **settings):
        assert world.wait(child) == 0, world.out("previewed")
    folder = world.root / "previewed"
    drawn = sorted(path.name for path in (folder / "samples").glob("step-*"))
    assert drawn == ["step-00000002", "step-00000004", "step-00000006"], "every fourth batch, two to a step"
    measured = [line for line in outside.read_lines(folder / "metrics.jsonl") if "val/val" in line]
    assert [line["step"] for line in measured] == [0, 6]
    assert {"val/train", "val/val_shadow"} <= measured[0].keys()
    refused = dict.fromkeys(("sample__prompt_file",), world.root / "nowhere.txt")
    for child in world.fork_group("refused", 2, **settings | refused | {"data__cache__text": False}):
        assert world.wait(child) == 2, world.out("refused")
    assert "nowhere.txt" in world.out("refused")
