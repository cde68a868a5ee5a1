"""Runs give the same result for any number of processes, workers and micro-batches, and under common launchers."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
import torch.distributed.run
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from mezzotint import outside
from mezzotint.cli import main
from mezzotint.run_folder import RunFolder
from mezzotint.training.checkpoints import state
from support.forked import free_port
from support.run_folders import assert_alike, logged, tensors_of

SETTINGS = {"run__steps": 6, "optim__accumulation": 2, "data__remainder": "short", "data__batch_size": 5}


def by_step(folder: Path, processes: int) -> list[list[tuple[str, float]]]:
    """For each step, the samples of all processes with their timesteps, sorted."""
    samples: dict[int, list[tuple[str, float]]] = {}
    for rank in range(processes):
        for line in outside.read_lines(folder / "logs" / f"samples.rank{rank}.jsonl"):
            samples.setdefault(line["step"], []).extend(zip(line["keys"], line["timesteps"], strict=True))
    return [sorted(samples[step]) for step in sorted(samples)]


@pytest.fixture(scope="module")
def one_process(shared_world: Any) -> Path:
    assert shared_world.wait(shared_world.fork("one-process", **SETTINGS)) == 0, shared_world.out("one-process")
    return Path(shared_world.root / "one-process")


@pytest.fixture(scope="module")
def two_processes(shared_world: Any) -> Path:
    for child in shared_world.fork_group("two", 2, **SETTINGS):
        assert shared_world.wait(child) == 0, shared_world.out("two")
    return Path(shared_world.root / "two")


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"data__workers": 2}, {"run__micro_batch": 2}], ids=["workers", "micro-batch"])
def test_workers_and_micro_batches_change_no_sample_or_loss(
    shared_world: Any, one_process: Path, change: dict[str, Any]
) -> None:
    name = "-".join(f"{k}{v}" for k, v in change.items())
    assert shared_world.wait(shared_world.fork(name, **SETTINGS, **change)) == 0, shared_world.out(name)
    other = shared_world.root / name
    assert by_step(other, 1) == by_step(one_process, 1)
    assert logged(other) == pytest.approx(logged(one_process), rel=2e-5)
    if "data__workers" in change:
        assert logged(other) == logged(one_process)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.parametrize("runtime", ["ddp", "fsdp"])
def test_rates_of_patterns_are_those_of_one_process(shared_world: Any, runtime: str) -> None:
    rates = '{"denoiser/mid_block.*": 2e-3, "denoiser/down_blocks.0.*": 3e-3, "denoiser/*attn2*": 1e-4}'
    world, settings = shared_world, SETTINGS | {"optim__lr": 1e-3, "optim__part_lr": rates}
    assert world.wait(world.fork(f"rates-one-{runtime}", **settings)) == 0, world.out(f"rates-one-{runtime}")
    for child in world.fork_group(f"rates-{runtime}", 2, run__runtime=runtime, **settings):
        assert world.wait(child) == 0, world.out(f"rates-{runtime}")
    assert_alike(tensors_of(world.root / f"rates-{runtime}"), tensors_of(world.root / f"rates-one-{runtime}"))


@pytest.mark.distributed
def test_two_processes_draw_the_same_samples_and_one_process_can_resume(
    shared_world: Any, one_process: Path, two_processes: Path
) -> None:
    world = shared_world
    assert by_step(two_processes, 2) == by_step(one_process, 1)
    assert logged(two_processes) == pytest.approx(logged(one_process), rel=2e-5)

    for child in world.fork_group("then-one", 2, **SETTINGS | {"run__steps": 3}):
        assert world.wait(child) == 0, world.out("then-one")
    parts = {
        path.name for path in state.newest_valid(world.root / "then-one" / "checkpoints").path.glob("*.safetensors")
    }
    assert parts >= {"weights-00001-of-00002.safetensors", "weights-00002-of-00002.safetensors"}
    assert world.wait(world.fork("then-one", **SETTINGS)) == 0, world.out("then-one")
    assert logged(world.root / "then-one") == pytest.approx(logged(one_process), rel=2e-5)
    resumed = [e for e in outside.read_lines(world.root / "then-one" / "history.jsonl") if e["event"] == "resumed"]
    assert "world size: 2 → 1" in resumed[0]["changes"]
    assert "not bit-exact from here" in world.out("then-one")


@pytest.mark.distributed
@pytest.mark.faults
def test_sigterm_to_one_of_two_processes_makes_both_save_and_exit(shared_world: Any, two_processes: Path) -> None:
    world = shared_world
    children = world.fork_group("term", 2, faults={1: "step.begin@3:term"}, **SETTINGS)
    assert [world.wait(child) for child in children] == [143, 143], world.out("term")
    assert state.newest_valid(world.root / "term" / "checkpoints").path.name == "step-00000003"
    for child in world.fork_group("term", 2, **SETTINGS):
        assert world.wait(child) == 0, world.out("term")
    assert logged(world.root / "term") == logged(two_processes)


@pytest.mark.distributed
@pytest.mark.faults
def test_killed_process_ends_the_other_soon_with_its_rank_named(shared_world: Any) -> None:
    world = shared_world
    children = world.fork_group("lost", 2, faults={1: "step.backward@4:kill"}, **SETTINGS)
    assert world.wait(children[1]) == 128 + signal.SIGKILL
    began = time.monotonic()
    assert world.wait(children[0]) == 6, world.out("lost")
    assert time.monotonic() - began < 300, "it waited until gloo's own timeout"
    output = world.out("lost")
    assert "process 0 lost process 1 of this run, which has ended; " in output
    assert "GLHF" not in output, "torch's own message is not printed"
    assert "closed by peer" not in output


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
@pytest.mark.parametrize(
    ("rank", "point"),
    [
        (0, "checkpoint.manifest@2"),
        (1, "checkpoint.file@2"),
        pytest.param(0, "checkpoint.begin@2", marks=pytest.mark.exhaustive),
        pytest.param(1, "checkpoint.begin@2", marks=pytest.mark.exhaustive),
        pytest.param(0, "checkpoint.file@2", marks=pytest.mark.exhaustive),
    ],
)
def test_kill_while_both_write_their_files_keeps_the_previous_checkpoint(
    shared_world: Any, one_process: Path, rank: int, point: str
) -> None:
    world, name = shared_world, f"part-{rank}-{point.partition('@')[0]}"
    settings = SETTINGS | {"run__save__every": 2, "run__save__asynchronous": False}
    file = point.replace("file@2", "file@4")  # three files each
    children = world.fork_group(name, 2, faults={rank: f"{file}:kill"}, **settings)
    assert world.wait(children[rank]) == 128 + signal.SIGKILL, world.out(name)
    assert world.wait(children[1 - rank]) == 6, world.out(name)
    checkpoints = world.root / name / "checkpoints"
    assert [path.name for path in state.list_checkpoints(checkpoints)] == ["step-00000002"]
    assert state.find_damage(checkpoints / "step-00000002") is None
    for child in world.fork_group(name, 2, **settings):
        assert world.wait(child) == 0, world.out(name)
    assert logged(world.root / name) == pytest.approx(logged(one_process), rel=2e-5)
    assert not list(checkpoints.glob(".*")), "no partial checkpoint is left"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_kill_during_an_asynchronous_save_of_two_resumes_bit_exactly(
    shared_world: Any, two_processes: Path, rank: int
) -> None:
    """One of two processes is killed two steps after an asynchronous save began, with one of its files written. The
    first save is still writing two of its files during later steps, which must not change them."""
    world, name = shared_world, f"behind-{rank}"
    settings = SETTINGS | {"run__save__every": 2, "run__save__keep": 1}
    assert "run__save__asynchronous" not in settings, "the default"
    files = "checkpoint.file@1:sleep=1,checkpoint.file@4:sleep=100"  # three files each
    faults = {rank: f"{files},step.backward@6:sleep=1,step.backward@6:kill"}
    began = time.monotonic()
    children = world.fork_group(name, 2, faults=faults, **settings)
    assert world.wait(children[rank]) == 128 + signal.SIGKILL, world.out(name)
    assert time.monotonic() - began < 100, "no step waited for the file"
    assert world.wait(children[1 - rank]) == 6, world.out(name)
    checkpoints = world.root / name / "checkpoints"
    assert [path.name for path in state.list_checkpoints(checkpoints)] == ["step-00000002"]
    assert state.find_damage(checkpoints / "step-00000002") is None
    (partial,) = checkpoints.glob(".*")
    written = {path.name for path in partial.glob("*.safetensors")}
    mine = {file for file in written if f"-{rank + 1:05d}-of-" in file}
    assert len(mine) == 1, "one of three files"
    for child in world.fork_group(name, 2, **settings):
        assert world.wait(child) == 0, world.out(name)
    assert world.end(name) == world.end("two")
    resumed = [e for e in outside.read_lines(world.root / name / "history.jsonl") if e["event"] == "resumed"]
    assert [event["step"] for event in resumed] == [2]
    assert [path.name for path in state.list_checkpoints(checkpoints)] == ["step-00000006"]
    assert not list(checkpoints.glob(".*")), "no partial checkpoint is left"


@pytest.mark.distributed
def test_more_processes_than_samples_are_refused(shared_world: Any) -> None:
    for child in shared_world.fork_group("many", 2, **SETTINGS | {"data__batch_size": 1}):
        assert shared_world.wait(child) == 2
    assert "data.batch_size is 1, too few for 2 processes" in shared_world.out("many")


def run_as_main(module: str, words: list[str]) -> NoReturn:
    """Runs `python -m MODULE` in this process and exits."""
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


def fork_workers() -> None:
    """Makes torchrun fork its workers in this process, instead of starting interpreters, which takes longer than all
    else here."""

    def launch(config: LaunchConfig, entrypoint: object) -> Callable[..., object]:
        def start(*words: str) -> object:
            assert words[:3] == ("-u", "-m", "mezzotint")
            return elastic_launch(replace(config, start_method="fork"), run_worker)(list(words[3:]))

        return start

    torch.distributed.run.elastic_launch = launch


@pytest.mark.slow
@pytest.mark.distributed
def test_accelerate_launch_trains_in_two_processes(shared_world: Any, one_process: Path) -> None:
    options = ["launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1", "--mixed_precision", "no",
               "--dynamo_backend", "no", "--main_process_port", str(free_port())]  # fmt: skip
    words = shared_world.words("accelerate", **SETTINGS | {"run__steps": 2})
    child = os.fork()
    if not child:
        fork_workers()
        run_as_main("accelerate.commands.accelerate_cli", [*options, "-m", "mezzotint", "train", *words])
    assert shared_world.wait(child) == 0
    folder = shared_world.root / "accelerate"
    assert json.loads((folder / "environment.json").read_text())["processes"] == 2
    assert logged(folder) == pytest.approx(logged(one_process)[:2], rel=2e-5)


def start_torchrun(world: Any, name: str, *, forks: bool, **settings: Any) -> int:
    """Starts torchrun with two processes in a process group of its own; their output is appended to NAME.out."""
    words = world.words(name, **SETTINGS | settings)
    child = os.fork()
    if not child:
        os.setsid()
        append_output_to(world.root / f"{name}.out")
        if forks:
            fork_workers()
        address = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
        line = [*address, "--nproc-per-node", "2", "-m", "mezzotint", "train", *words]
        run_as_main("torch.distributed.run", line)
    return child


def append_output_to(file: Path) -> None:
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)


def start_elastic(world: Any, name: str, *, backend: str, fault: str, **settings: Any) -> int:
    """torchrun's agent with up to two restarts, over two forked processes, which have torch imported already. backend:
    the rendezvous."""
    words = ["train", *world.words(name, **SETTINGS | settings)]
    child = os.fork()
    if not child:
        status = 1
        try:
            append_output_to(world.root / f"{name}.out")
            os.environ.update(GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", MEZZOTINT_FAULT=fault)
            config = LaunchConfig(
                min_nodes=1, max_nodes=1, nproc_per_node=2, rdzv_backend=backend, max_restarts=2, start_method="fork",
                rdzv_endpoint=f"127.0.0.1:{free_port()}", local_addr="127.0.0.1", run_id=name,
                rdzv_configs={"rank": 0} if backend == "static" else {}, logs_specs=DefaultLogsSpecs(),
            )  # fmt: skip
            elastic_launch(config, run_worker)(words)
            status = 0
        finally:
            os._exit(status)
    return child


def run_worker(words: list[str]) -> None:
    torch.set_num_threads(1)
    sys.exit(main(words))


OFTEN_SAVED = {"run__steps": 10, "run__save__every": 2, "run__save__asynchronous": False}


@pytest.fixture(scope="module")
def undisturbed(shared_world: Any) -> str:
    """Name of an uninterrupted run of two processes."""
    children = shared_world.fork_group("undisturbed-two", 2, **SETTINGS | OFTEN_SAVED)
    assert [shared_world.wait(child) for child in children] == [0, 0], shared_world.out("undisturbed-two")
    return "undisturbed-two"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
@pytest.mark.parametrize(("backend", "killed_at"), [("static", [8]), ("c10d", [4, 8])], ids=["static", "c10d"])
def test_torchrun_restarts_after_a_kill_and_the_result_is_the_same(
    shared_world: Any, undisturbed: str, backend: str, killed_at: list[int]
) -> None:
    """Keys that one attempt left in the store do not disturb the next."""
    world, name = shared_world, f"elastic-{backend}"
    # only rank 0 reaches this point, and in the last attempt only once
    fault = f"checkpoint.renamed@{killed_at[0] // 2}:kill"
    child = start_elastic(world, name, backend=backend, fault=fault, **OFTEN_SAVED)
    assert world.wait(child) == 0, world.out(name)
    assert world.end(name) == world.end(undisturbed)
    resumed = [e for e in outside.read_lines(world.root / name / "history.jsonl") if e["event"] == "resumed"]
    assert [event["step"] for event in resumed] == killed_at, world.out(name)
    assert RunFolder(world.root / name).attempts() == len(killed_at) + 1, "the history shows each attempt"


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.faults
@pytest.mark.parametrize(
    "forks", [True, pytest.param(False, marks=pytest.mark.exhaustive)], ids=["forked", "new-interpreters"]
)
def test_sigterm_to_the_group_of_torchrun_saves_once_and_can_be_resumed(shared_world: Any, forks: bool) -> None:
    world, name = shared_world, f"group-term-{forks}"
    child = start_torchrun(world, name, forks=forks, run__steps=400, run__save__every=1000)
    metrics, checkpoints = world.root / name / "metrics.jsonl", world.root / name / "checkpoints"
    end = time.monotonic() + 200
    while not outside.read_lines(metrics):
        assert time.monotonic() < end, world.out(name)
        time.sleep(0.2)
    of_training = ["pgrep", "-P", str(child)]
    if not forks:
        of_training += ["-f", "^[^ ]*python[^ ]* -u -m mezzotint"]  # as in the docs
    workers = [int(pid) for pid in subprocess.check_output(of_training).split()]
    assert len(workers) == 2
    assert json.loads((world.root / name / "environment.json").read_text())["processes"] == 2
    os.kill(workers[1], signal.SIGUSR1)
    while not any(checkpoints.glob("step-*")):
        assert time.monotonic() < end, world.out(name)
        time.sleep(0.2)
    os.killpg(child, signal.SIGTERM)
    assert world.wait(child) == 1, "torchrun's own status"
    newest = state.newest_valid(checkpoints).path
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
def test_previews_and_validation_of_two_processes_follow_a_prompt_file(shared_world: Any) -> None:
    world = shared_world
    file = world.root / "prompts.json"
    samples = [{"prompt": "a red circle"}, {"random_caption": True, "seed": -1}]
    head = {"at_start": False, "every_batches": 4, "guidance": 1, "steps": 1}
    file.write_text(json.dumps(head | {"samples": samples}))
    settings = SETTINGS | {
        "run__preview__every": 1, "run__preview__weights": "raw", "sample__prompt_file": file,
        "run__validation__every": 6, "run__validation__training_fraction": 0.3,
        "data__holdout__path": world.images, "data__cache__latents": True, "data__cache__text": True,
    }  # fmt: skip
    for child in world.fork_group("previewed", 2, **settings):
        assert world.wait(child) == 0, world.out("previewed")
    folder = world.root / "previewed"
    previews = sorted(path.name for path in (folder / "samples").glob("step-*"))
    assert previews == ["step-00000002", "step-00000004", "step-00000006"], "every fourth batch, two to a step"
    measured = [line for line in outside.read_lines(folder / "metrics.jsonl") if "val/val" in line]
    assert [line["step"] for line in measured] == [0, 6]
    assert {"val/train", "val/val_shadow"} <= measured[0].keys()
    refused = dict.fromkeys(("sample__prompt_file",), world.root / "nowhere.txt")
    for child in world.fork_group("refused", 2, **settings | refused | {"data__cache__text": False}):
        assert world.wait(child) == 2, world.out("refused")
    assert "nowhere.txt" in world.out("refused")
