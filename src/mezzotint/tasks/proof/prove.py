"""`mezzotint prove RECIPE`: checks on this machine that a killed run of this recipe resumes bit-exactly.

One run of eight steps without interruption, and one that is killed in the sixth step and resumed from the checkpoint of
the fourth. Every tensor of the last checkpoint and every logged loss is compared bit by bit. With `--processes=N` each
run has N processes on this machine, as torchrun starts them.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import torch

from mezzotint import durable, fault_injection
from mezzotint.errors import CheckpointError, MezzotintError, escape_line
from mezzotint.reports.curves import read_metrics
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch
from mezzotint.runtimes.shared import launch
from mezzotint.settings.base import Every, with_values
from mezzotint.settings.reading.read import Reading, digest_of
from mezzotint.tasks.reading import choices
from mezzotint.tasks.reading.arguments import parse_with
from mezzotint.tasks.reading.continuing import folder_of
from mezzotint.tasks.train.train import train
from mezzotint.training.checkpoints import state

STEPS, SAVED, KILLED = 8, 4, 6


def run(arguments: Sequence[str]) -> int:
    """`mezzotint prove RECIPE key=value … [--processes=N]`. Returns 0 if the results are bitwise identical.

    Raises CheckpointError: E1517 naming what differs, E1518 under a launcher of several processes, or if one of the
    runs fails, with its error.
    """
    reading, line = parse_with(arguments, "prove")
    processes = line.get_integer("--processes", 1) or 1
    if Launch.read().world_size > 1:
        raise CheckpointError(
            "mezzotint prove starts its own processes; start it without a launcher, and with --processes=N for several",
            code="E1518",
        )
    started = time.monotonic()
    one_seed, sentences = choices.choose_seeds(reading.recipe)
    for sentence in sentences:
        print(escape_line(sentence), flush=True)
    reading = replace(reading, recipe=one_seed)  # the same seed for both runs
    run_folder = folder_of(reading, reading.recipe)
    with ExitStack() as stack:
        stack.callback(durable.drop_empty, durable.make_folders(run_folder.parent))
        scratch = stack.enter_context(durable.temporary_folder(run_folder))
        runs = {name: _as_proof(reading, scratch / name) for name in ("whole", "parted")}
        _require_success("the uninterrupted run", _run_forked(lambda: _train_recipe(runs["whole"]), processes))
        errors = scratch / "killed.txt"
        status = _run_forked(lambda: _train_recipe(runs["parted"], fault=f"step.end@{KILLED}:kill"), processes, errors)
        if status != 128 + signal.SIGKILL:
            sys.stderr.write(errors.read_text("utf-8", "replace"))
            _require_success("the run to be killed", status or 1)
        _require_success("the resumed run", _run_forked(lambda: _train_recipe(runs["parted"]), processes))
        identical = compare_runs(*(RunFolder(scratch / name) for name in runs))
    of = f" of {processes} processes" if processes > 1 else ""
    summary = f"{STEPS} steps{of} without interruption, and killed in step {KILLED} and resumed from step {SAVED},"
    print(escape_line(f"{reading.name}: {summary}"))
    print(f"are bitwise identical: {identical}; {time.monotonic() - started:.0f} s")
    return 0


def _as_proof(reading: Reading, folder: Path) -> Reading:
    """The recipe with another length and folder, and without output for users."""
    recipe = with_values(
        reading.recipe,
        {
            "run.folder": folder, "run.steps": STEPS, "run.epochs": None, "run.extend": None, "run.whole_epochs": False,
            "run.resume": "auto", "run.save.every": (Every.parse(f"{SAVED} steps"),), "run.save.keep": None,
            "run.save.asynchronous": False, "run.export.every": (), "run.export.when_stopped": False,
            "run.export.folder": None, "run.preview.every": None, "run.log_every": 1, "run.tensorboard": False,
            "run.wandb.mode": "off", "run.profile.steps": 0,
        },
    )  # fmt: skip
    return replace(reading, recipe=recipe, path=None, digest=digest_of(recipe), fork=None)


def _train_recipe(reading: Reading, fault: str = "") -> None:
    fault_injection.arm(fault)
    train(reading, exports=False)


def _run_forked(work: Callable[[], None], processes: int, errors: Path | None = None) -> int:
    """The exit status of the work in forked processes; 128 + n for a signal, the largest of several. Its output is
    discarded, except for errors. errors: the file that they are appended to."""
    sys.stdout.flush()
    port = launch.free_port() if processes > 1 else 0
    children = []
    for rank in range(processes):
        child = os.fork()
        if not child:
            if processes > 1:
                launch.set_launch_variables(rank, processes, port)
            _run_and_exit(work, errors)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return max(code if code >= 0 else 128 - code for code in codes)


def _run_and_exit(work: Callable[[], None], errors: Path | None) -> NoReturn:
    status = 1
    try:
        if errors is not None:
            sys.stderr = errors.open("a", encoding="utf-8", errors="surrogateescape")
        with open(os.devnull, "w", encoding="utf-8") as sys.stdout:
            work()
        status = 0
    except MezzotintError as error:
        sys.stderr.write(f"{error}\n")
        status = error.exit_status
    except Exception:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _require_success(subject: str, status: int) -> None:
    if status:
        raise CheckpointError(f"{subject} ended with status {status}, which proves nothing", code="E1518")


def compare_runs(first: RunFolder, second: RunFolder) -> str:
    """Counts what is identical. Raises CheckpointError E1517 naming the first step or tensor that differs."""
    losses = [
        {line["step"]: (line["loss"], line["norm"], line["samples_digest"]) for line in read_metrics(run).steps}
        for run in (first, second)
    ]
    for step in sorted({*losses[0], *losses[1]}):
        if losses[0].get(step) != losses[1].get(step):
            raise _difference_error(f"step {step} has {losses[0].get(step)} and {losses[1].get(step)}")
    ends = [state.newest_valid(run.checkpoints).path for run in (first, second)]
    if None in ends:
        raise CheckpointError("a run has no checkpoint, which proves nothing", code="E1518")
    tensors = [state.read(path).tensors for path in ends if path is not None]
    for name in sorted({*tensors[0], *tensors[1]}):
        pair = [checkpoint_tensors.get(name) for checkpoint_tensors in tensors]
        if pair[0] is None or pair[1] is None or not _is_identical(pair[0], pair[1]):
            raise _difference_error(f"the tensor {name} differs")
    return f"{len(losses[0])} losses and norms, {len(tensors[0])} tensors"


def _is_identical(first: torch.Tensor, second: torch.Tensor) -> bool:
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    bits = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (first, second)]
    return torch.equal(*bits)


def _difference_error(difference: str) -> CheckpointError:
    return CheckpointError(
        f"a run that is killed and resumed differs from the uninterrupted run: {difference}; set "
        "run.deterministic=true, and report it if that is not enough",
        code="E1517",
    )
