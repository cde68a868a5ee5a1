"""Profiles a few steps: writes a trace of each process for chrome://tracing or Perfetto. Results do not change."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from mezzotint import durable
from mezzotint.stages import StepReport
from mezzotint.training.callbacks.base import Action, Callback, Setup
from mezzotint.training.progress import Progress

WARM_UP = 2
"""Steps before the first profiled one: kernels are selected and memory is allocated in them."""


class Profiler(Callback):
    """Profiles `steps` steps after the warm-up and writes `rankN.json` into the folder; then it is never due again.

    say: receives the path of the trace. A folder that cannot be written is a StorageError, of which the trainer warns.
    """

    on_all_ranks = True

    def __init__(
        self, folder: Path, steps: int, *, rank: int, device: torch.device, say: Callable[[str], None]
    ) -> None:
        self._path = folder / f"rank{rank}.json"
        self._steps = steps
        self._num_seen = 0
        self._say = say
        kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
        self._profile: profile | None = profile(activities=kinds)

    def due(self, progress: Progress) -> bool:
        """From the first step to the last profiled one."""
        return self._profile is not None and progress.step > 0

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Starts, continues or stops the profile, depending on the steps so far."""
        self._num_seen += 1
        if self._profile is None:
            return Action.NOTHING
        if self._num_seen == WARM_UP:
            self._profile.start()
        elif self._num_seen == WARM_UP + self._steps or progress.is_done:
            self._end(self._profile)
        return Action.NOTHING

    def _end(self, running: profile) -> None:
        self._profile = None
        if self._num_seen <= WARM_UP:
            return
        running.stop()
        with durable.storage_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        numbered = (self._path.with_stem(f"{self._path.stem}-{number}") for number in itertools.count(2))
        # keeps traces of earlier starts, and a user's file of that name
        target = next(path for path in itertools.chain([self._path], numbered) if not os.path.lexists(path))
        with durable.replacing(target, durably=False) as temporary:
            running.export_chrome_trace(str(temporary))
        self._say(f"profile    {self._num_seen - WARM_UP} steps in {target}")

    def close(self) -> None:
        """Stops a running profile; a run that ends during it writes no trace."""
        if self._profile is not None and self._num_seen >= WARM_UP:
            self._profile.stop()
        self._profile = None


def create_callbacks(setup: Setup) -> Iterator[Callback]:
    """Enabled by `run.profile.steps`."""
    profile, runtime = setup.run.profile, setup.runtime
    if profile.steps:
        folder = profile.folder or setup.folder.logs / "profile"
        yield Profiler(folder, profile.steps, rank=runtime.rank, device=runtime.device, say=setup.say)
