"""`mezzotint prove RECIPE`: whether this recipe, on this machine, goes on after a kill as if nothing had been.

Eight steps in one go, and beside them eight that are killed in the sixth, without a warning, and gone on with from the
checkpoint of the fourth. Every tensor of the last checkpoint and every logged loss is compared bit by bit. With
`--processes=N` each run is one of N processes on this machine, as torchrun starts them.
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
from mezzotint.errors import CheckpointError, MezzotintError, visible
from mezzotint.reports.curves import read_metrics
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch
from mezzotint.runtimes.shared import launch
from mezzotint.settings.base import Every, with_values
from mezzotint.settings.reading.read import Reading, digest_of
from mezzotint.tasks.reading import settling
from mezzotint.tasks.reading.arguments import parse_with
from mezzotint.tasks.reading.continuing import folder_of
from mezzotint.tasks.train.train import train
from mezzotint.training.checkpoints import state

STEPS, SAVED, KILLED = 8, 4, 6


def run(arguments: Sequence[str]) -> int:
    """`mezzotint prove RECIPE key=value … [--processes=N]`. Returns 0 when the bits are the same.

    Raises CheckpointError: E1517 naming what differs, E1518 under a launcher of several processes, or where one of the
    runs fails, with its own error.
    """
    reading, line = parse_with(arguments, "prove")
    processes = line.whole("--processes", 1) or 1
    if Launch.read().world_size > 1:
        raise CheckpointError(
            "mezzotint prove starts its own processes; start it without a launcher, and with --processes=N for several",
            code="E1518",
        )
    began = time.monotonic()
    one_seed, sentences = settling.settle_seeds(reading.recipe)
    for sentence in sentences:
        print(visible(sentence), flush=True)
    reading = replace(reading, recipe=one_seed)  # both runs have it
    place = folder_of(reading, reading.recipe)
    with ExitStack() as stack:
        stack.callback(durable.drop_empty, durable.make_folders(place.parent))
        scratch = stack.enter_context(durable.scratch_beside(place))
        runs = {name: _as_proof(reading, scratch / name) for name in ("whole", "parted")}
        _done("in one go", _forked(lambda: _trained(runs["whole"]), processes))
        errors = scratch / "killed.txt"
        status = _forked(lambda: _trained(runs["parted"], fault=f"step.end@{KILLED}:kill"), processes, errors)
        if status != 128 + signal.SIGKILL:
            sys.stderr.write(errors.read_text("utf-8", "replace"))
            _done("the run to be killed", status or 1)
        _done("going on", _forked(lambda: _trained(runs["parted"]), processes))
        compared_numbers = compared(*(RunFolder(scratch / name) for name in runs))
    of = f" of {processes} processes" if processes > 1 else ""
    what = f"{STEPS} steps{of} in one go, and killed in step {KILLED} and gone on with from {SAVED},"
    print(visible(f"{reading.name}: {what}"))
    print(f"are the same to the bit: {compared_numbers}; {time.monotonic() - began:.0f} s")
    return 0


def _as_proof(reading: Reading, folder: Path) -> Reading:
    """The recipe as it is, but for its length, its folder and what is written for people."""
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


def _trained(reading: Reading, fault: str = "") -> None:
    fault_injection.arm(fault)
    train(reading, exports=False)


def _forked(work: Callable[[], None], processes: int, errors: Path | None = None) -> int:
    """The exit status of the work in processes of its own, which nothing but its files outlives; 128 + n for a signal,
    and of several the largest. What it prints goes nowhere, but for errors. errors: the file that they are added to."""
    sys.stdout.flush()
    port = launch.free_port() if processes > 1 else 0
    children = []
    for rank in range(processes):
        child = os.fork()
        if not child:
            if processes > 1:
                launch.take_place(rank, processes, port)
            _ended(work, errors)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return max(code if code >= 0 else 128 - code for code in codes)


def _ended(work: Callable[[], None], errors: Path | None) -> NoReturn:
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


def _done(what: str, status: int) -> None:
    if status:
        raise CheckpointError(f"{what} ended with status {status}, so that nothing can be proved", code="E1518")


def compared(one: RunFolder, other: RunFolder) -> str:
    """What is the same. Raises CheckpointError E1517 naming the first step or tensor that is not."""
    losses = [
        {line["step"]: (line["loss"], line["norm"], line["samples_digest"]) for line in read_metrics(run).steps}
        for run in (one, other)
    ]
    for step in sorted({*losses[0], *losses[1]}):
        if losses[0].get(step) != losses[1].get(step):
            raise _differs(f"step {step} has {losses[0].get(step)} and {losses[1].get(step)}")
    ends = [state.newest(run.checkpoints).path for run in (one, other)]
    if None in ends:
        raise CheckpointError("a run has no checkpoint, so that nothing can be proved", code="E1518")
    tensors = [state.read(path).tensors for path in ends if path is not None]
    for name in sorted({*tensors[0], *tensors[1]}):
        pair = [each.get(name) for each in tensors]
        if pair[0] is None or pair[1] is None or not _same(pair[0], pair[1]):
            raise _differs(f"the tensor {name} is another one")
    return f"{len(losses[0])} losses and norms, {len(tensors[0])} tensors"


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    bits = [each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other)]
    return torch.equal(*bits)


def _differs(what: str) -> CheckpointError:
    return CheckpointError(
        f"a run that is killed and gone on with is not the run in one go: {what}; write run.deterministic=true, and "
        "report it where that is not enough",
        code="E1517",
    )
