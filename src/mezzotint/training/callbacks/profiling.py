"""A look at where the time of a few steps goes: a trace of each process for chrome://tracing or Perfetto. The run goes
on as it would have."""

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
"""Steps of a start before the first one that is looked at: kernels are chosen and memory is taken in them."""


class Profiler(Callback):
    """Watches `steps` steps after two others and writes `rankN.json` into the folder; then it is never due again.

    say: told where the trace lies. A folder that cannot be written is a StorageError, which the trainer tells of.
    """

    on_all_ranks = True

    def __init__(
        self, folder: Path, steps: int, *, rank: int, device: torch.device, say: Callable[[str], None]
    ) -> None:
        self._path = folder / f"rank{rank}.json"
        self._steps = steps
        self._looks = 0
        self._say = say
        kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")
        self._profile: profile | None = profile(activities=kinds)

    def due(self, progress: Progress) -> bool:
        """From the first step to the last that is looked at."""
        return self._profile is not None and progress.step > 0

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Begins, goes on or ends, by the steps seen so far."""
        self._looks += 1
        if self._profile is None:
            return Action.NOTHING
        if self._looks == WARM_UP:
            self._profile.start()
        elif self._looks == WARM_UP + self._steps or progress.is_done:
            self._end(self._profile)
        return Action.NOTHING

    def _end(self, watched: profile) -> None:
        self._profile = None
        if self._looks <= WARM_UP:
            return
        watched.stop()
        with durable.storage_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        numbered = (self._path.with_stem(f"{self._path.stem}-{number}") for number in itertools.count(2))
        # traces of an earlier start, and a user's file of that name, stay
        place = next(one for one in itertools.chain([self._path], numbered) if not os.path.lexists(one))
        with durable.replacing(place, durably=False) as aside:
            watched.export_chrome_trace(str(aside))
        self._say(f"profile    {self._looks - WARM_UP} steps in {place}")

    def close(self) -> None:
        """A run that ends while it is watched leaves no trace."""
        if self._profile is not None and self._looks >= WARM_UP:
            self._profile.stop()
        self._profile = None


def opened(setup: Setup) -> Iterator[Callback]:
    """With `run.profile.steps`."""
    profile, runtime = setup.run.profile, setup.runtime
    if profile.steps:
        folder = profile.folder or setup.folder.logs / "profile"
        yield Profiler(folder, profile.steps, rank=runtime.rank, device=runtime.device, say=setup.say)
