"""The dry run of `check`: two real steps with real batches, to estimate how long the run would take. The run's files
are not touched: caches are written to a temporary folder, and the trained weights are discarded."""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mezzotint.runtimes.base import Launch, open_runtime
from mezzotint.settings.advice import suggest_less_memory
from mezzotint.settings.base import with_values
from mezzotint.settings.recipe import Recipe
from mezzotint.stages import StepReport
from mezzotint.tasks import assemble
from mezzotint.tasks.assemble import Dataset
from mezzotint.tasks.cache import cache
from mezzotint.tasks.resolving import resolve
from mezzotint.training.loop import Trainer

STEPS = 2


@dataclass(frozen=True, slots=True)
class DryRun:
    """Two steps of one process. seconds: of each, waiting for data included. samples: of the last one, over all
    processes. memory: the device's peak in bytes, 0 where it is not measured (on the CPU). device: where it ran."""

    seconds: tuple[float, ...]
    samples: int
    memory: int
    device: str

    @property
    def seconds_a_step(self) -> float:
        """Seconds of the last step; the first one includes warm-up."""
        return self.seconds[-1]

    @property
    def samples_a_second(self) -> float:
        """Over all processes."""
        return self.samples / self.seconds_a_step


def dry_run(recipe: Recipe, dataset: Dataset, steps: int, *, processes: int = 1) -> DryRun:
    """Runs the first two steps (one for a run of one step) as the first of so many processes would, in a single
    process.

    Raises OutOfMemory E1751 when the device is too small, and whatever loading and encoding raise.
    """
    shortage = assemble.translate_shortage("the dry run ran out of memory", suggest_less_memory(recipe))
    with tempfile.TemporaryDirectory(prefix="mezzotint-check-") as folder, shortage:
        values = {"data.cache.path": Path(folder), "run.runtime": "single", "run.folder": Path(folder, "run")}
        single = with_values(recipe, values)
        with closing(open_runtime(single.run, Launch())) as runtime:
            files = assemble.open_files(single)
            caches = assemble.open_caches(single, files)
            rows = [(dataset.catalogue, _rows_of(dataset, min(STEPS, steps)), single.data)]
            cache.fill_rows(single, files, runtime, rows, caches, say=lambda line: None)
            resolved = resolve(single, min(STEPS, steps))
            model = assemble.open_model(resolved, files, runtime)
            opened = assemble.open_trainer(resolved, runtime, dataset, caches, model, world_size=processes)
            with opened as trainer:
                return _run_timed(trainer)


def _rows_of(dataset: Dataset, steps: int) -> NDArray[np.int32]:
    visited = []
    for step in range(steps):
        epoch_index, step_in_epoch = dataset.timeline.locate(step)
        epoch = dataset.timeline.epoch(epoch_index)
        for batch in np.flatnonzero(epoch.step_of == step_in_epoch):
            visited.append(epoch.order[epoch.starts[batch] : epoch.starts[batch + 1]])
    return np.unique(dataset.rows[np.concatenate(visited)]).astype(np.int32)


def _run_timed(trainer: Trainer) -> DryRun:
    runtime = trainer.runtime
    if runtime.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(runtime.device)
    seconds: list[float] = []
    report: StepReport | None = None
    started = time.perf_counter()
    for batches in trainer.batches:
        report = trainer.train_step(batches).result()  # waits for the device
        now = time.perf_counter()
        seconds.append(now - started)
        started = now
    assert report is not None
    peak = torch.cuda.max_memory_allocated(runtime.device) if runtime.device.type == "cuda" else 0
    return DryRun(tuple(seconds), report.samples, peak, str(runtime.device))
