"""What saving costs, of about a gigabyte of state: against torch.save with fsync in CPU seconds, and against a save at
once in seconds that a loop of steps waits. Ratios of one run, taken in turn; the median of several rounds.

Each file is removed before the next is written, so that all of them are given memory that this machine has in use."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from mezzotint import durable
from mezzotint.runtimes.base import Launch
from mezzotint.runtimes.single import Runtime
from mezzotint.settings.sections.run import RunSettings
from mezzotint.settings.sections.saving import SaveSettings
from mezzotint.training.checkpoints.background_save import Saves

ROUNDS = 5
STEP_SECONDS = 1.0
"""Of forward and backward pass in the loop: a network of 64 million parameters takes longer on one core."""


def rows(rounds: int = ROUNDS, millions: int = 64) -> list[tuple[str, str, str]]:
    """(mark, goal, figure) of each mark. millions: of parameters, each with average and two moments in float32."""
    torch.set_num_threads(1)
    size = millions * 2**20 // 128
    kinds = ("w", "ema", "opt.mean", "opt.square")
    tensors = {f"{kind}/denoiser/p{number}": torch.randn(size) for kind in kinds for number in range(128)}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        save, with_prune = _cpu(tensors, Path(folder), rounds)
        stall = statistics.median(_stall(tensors, Path(folder)) for _ in range(rounds))
    return [
        ("CPU of a save / torch.save with fsync", "≤ 1.5", f"{save:.2f}"),
        ("the same with an old checkpoint removed", "≤ 1.5", f"{with_prune:.2f}"),
        ("stall of training / a save that is waited for", "≤ 0.3", f"{stall:.2f}"),
    ]


def _cpu(tensors: dict[str, Tensor], folder: Path, rounds: int) -> tuple[float, ...]:
    plain, alone, pruned = [], [], []
    for number in range(rounds):
        plain.append(_cpu_seconds(lambda: _plain_save(tensors, folder / "plain.pt")))
        (folder / "plain.pt").unlink()
        keeping, removing = _saves(folder / f"kept-{number}"), _saves(folder / f"pruned-{number}", keep=1)
        alone.append(_cpu_seconds(lambda one=keeping: _save(one, tensors, 1)))
        _remove(folder)
        _save(removing, tensors, 1)
        pruned.append(_cpu_seconds(lambda one=removing: _save(one, tensors, 2)))
        _remove(folder)
    return tuple(statistics.median(taken) / statistics.median(plain) for taken in (alone, pruned))


def _stall(tensors: dict[str, Tensor], folder: Path, steps: int = 4) -> float:
    """How long a loop of steps waits for its one save, as a share of how long it waits for a save at once."""
    waited: list[float] = []
    for at_once in (True, False):
        saves = _saves(folder / f"stall-{at_once}")
        began = time.monotonic()
        _save(saves, tensors, 1, at_once=at_once)
        waited.append(time.monotonic() - began)
        for _ in range(steps):
            _compute(STEP_SECONDS)
            began = time.monotonic()
            saves.hold()
            waited[-1] += time.monotonic() - began
            for tensor in tensors.values():
                tensor.mul_(0.999)
        saves.end()
        _remove(folder)
    return waited[1] / waited[0]


def _compute(seconds: float) -> None:
    """As much arithmetic as takes so long on a core of its own."""
    a, began = torch.randn(512, 512), time.thread_time()
    while time.thread_time() - began < seconds:
        a = (a @ a).tanh()


def _saves(folder: Path, keep: int | None = None) -> Saves:
    runtime = Runtime(torch.device("cpu"), Launch(), RunSettings())
    return Saves(folder, runtime, RunSettings(save=SaveSettings(keep=keep)), print)


def _save(saves: Saves, tensors: dict[str, Tensor], step: int, *, at_once: bool = True) -> None:
    saves.begin(step=step, tensors=tensors, values={}, recipe_digest="", at_once=at_once)


def _plain_save(tensors: dict[str, Tensor], path: Path) -> None:
    torch.save(tensors, path)
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def _cpu_seconds(work: Callable[[], object]) -> float:
    os.sync()  # what lies there still to be written is no part of it
    began = time.process_time()
    work()
    return time.process_time() - began


def _remove(folder: Path) -> None:
    for path in [*folder.glob("*/*")]:
        durable.remove_tree(path)


if __name__ == "__main__":
    for row in rows():
        print(*row, sep="\t")
