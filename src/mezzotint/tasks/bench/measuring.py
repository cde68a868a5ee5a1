"""One measured run for `bench`: the real training loop and data, without run folder, checkpoints and previews."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from mezzotint.data.buckets import buckets
from mezzotint.data.schedule.plan import Timeline
from mezzotint.runtimes.base import Runtime
from mezzotint.settings.recipe import Recipe
from mezzotint.shapes import Size
from mezzotint.stages import StepBatches, StepReport
from mezzotint.tasks import assemble
from mezzotint.tasks.assemble import Caches, Dataset
from mezzotint.tasks.cache import cache, class_images
from mezzotint.tasks.resolving import length_in_steps, resolve
from mezzotint.training.callbacks.base import Action, Callback
from mezzotint.training.progress import Progress
from mezzotint.weights.model_files import ModelFiles

MAX_STEPS = 101
"""Steps of a run whose length is not given: those of the published protocol."""


@dataclass(frozen=True, slots=True)
class Step:
    """One measured step. seconds: by the trainer's clock, including waiting for data. cpu_seconds: of all processes,
    without loader workers. processed: samples over all processes. distinct: those of them that occur for the first time
    in their epoch. sizes: samples by image size. last_micro_loss: mean loss of this process's last micro-batch."""

    seconds: float
    wait_seconds: float
    cpu_seconds: float
    processed: int
    distinct: int
    sizes: dict[Size, int]
    loss: float
    last_micro_loss: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A run's figures. timeline: the plan of its batches. setup_seconds: from the start to the first step.
    cache_seconds: the part of them for filling caches. memory: peak bytes during the steps, of the device, or on a CPU
    of the process. images: of the data set, without held-out ones."""

    name: str
    recipe: Recipe
    steps: tuple[Step, ...]
    timeline: Timeline
    setup_seconds: float
    cache_seconds: float
    memory: int
    images: int


def length(recipe: Recipe, dataset: Dataset, steps: int | None) -> int:
    """The number of steps that a row trains. steps: as given; None for the run's length, at most MAX_STEPS."""
    return steps or min(MAX_STEPS, length_in_steps(recipe, dataset.timeline))


def measure(name: str, recipe: Recipe, runtime: Runtime, steps: int | None, say: Callable[[str], None]) -> Measured:
    """Trains the first steps of a recipe.

    All processes call it together. Raises OutOfMemory E1751, and as opening data and model does.
    """
    started = time.perf_counter()
    recipe, notes = class_images.prepare_for_check(recipe)  # none is generated for a benchmark
    for note in notes:
        say(note)
    dataset = assemble.open_dataset(recipe, runtime)
    files = assemble.open_files(recipe)
    caches, cache_seconds = _fill_caches(recipe, files, dataset, runtime, say)
    resolved = resolve(recipe, length(recipe, dataset, steps))
    remedy = "lower run.micro_batch (the mathematics stays the same)"
    try:
        with assemble.translate_shortage(f"{name}: {runtime.device} has not enough memory", remedy):
            model = assemble.open_model(resolved, files, runtime)
            reports = _Reports()
            with assemble.open_trainer(resolved, runtime, dataset, caches, model, callbacks=[reports]) as trainer:
                feed = trainer.batches = Feed(trainer.batches, dataset.timeline, buckets.table(recipe.data))
                reset_peak(runtime.device)
                setup = time.perf_counter() - started
                trainer.run()
                feed.mark()
                memory = peak_memory(runtime.device)
                cpu = torch.tensor(np.diff(feed.marks), dtype=torch.float32, device=runtime.device)
                cpu_seconds = runtime.sum_over_processes(cpu).tolist()
            return Measured(
                name=name,
                recipe=recipe,
                steps=tuple(_steps(feed, reports.received, cpu_seconds)),
                timeline=dataset.timeline,
                setup_seconds=setup,
                cache_seconds=cache_seconds,
                memory=memory,
                images=len(dataset.rows),
            )
    finally:
        gc.collect()
        if torch.accelerator.is_available():
            torch.accelerator.empty_cache()


@dataclass(slots=True)
class Feed:
    """Wraps the loader and records the sizes of each step's micro-batches (shares), and the CPU seconds at the request
    of each step (marks)."""

    loader: Iterable[StepBatches]
    timeline: Timeline
    table: Sequence[Size]
    marks: list[float] = field(default_factory=list)
    shares: list[list[int]] = field(default_factory=list)

    def __iter__(self) -> Iterator[StepBatches]:
        rest = iter(self.loader)
        while True:
            self.mark()
            batches = next(rest, None)
            if batches is None:
                self.marks.pop()
                return
            self.shares.append(list(batches.sizes))
            yield batches

    def mark(self) -> None:
        """Records the start of a step, or the end of the last one."""
        self.marks.append(time.process_time())


class _Reports(Callback):
    """Collects all reports, delayed ones, so that no step waits."""

    receives_delayed_reports = True
    on_all_ranks = True

    def __init__(self) -> None:
        self.received: list[StepReport] = []

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        if report is not None:
            self.received.append(report)
        return Action.NOTHING


def _steps(feed: Feed, reports: Sequence[StepReport], cpu_seconds: Sequence[float]) -> Iterator[Step]:
    for number, report in enumerate(reports):
        distinct, sizes = counts(feed.timeline, feed.table, report.step)
        losses = report.losses[-feed.shares[number][-1] :] if feed.shares[number][-1] else report.losses
        yield Step(
            seconds=report.seconds,
            wait_seconds=report.wait_seconds,
            cpu_seconds=cpu_seconds[number],
            processed=report.samples,
            distinct=distinct,
            sizes=sizes,
            loss=report.loss,
            last_micro_loss=float(np.mean(losses)) if losses else float("nan"),
        )


def counts(timeline: Timeline, table: Sequence[Size], step: int) -> tuple[int, dict[Size, int]]:
    """Counts a step's samples on all processes: those that occur for the first time in their epoch, and those of each
    size. table: of buckets."""
    number, step_of_epoch = timeline.locate(step)
    epoch = timeline.epoch(number)
    distinct, sizes = 0, dict[Size, int]()
    for batch in np.flatnonzero(epoch.step_of == step_of_epoch).tolist():
        visits = epoch.visit[epoch.starts[batch] : epoch.starts[batch + 1]]
        distinct += int((visits == 0).sum())
        size = table[int(epoch.bucket[batch])]
        sizes[size] = sizes.get(size, 0) + len(visits)
    return distinct, sizes


def _fill_caches(
    recipe: Recipe, files: ModelFiles, dataset: Dataset, runtime: Runtime, say: Callable[[str], None]
) -> tuple[Caches, float]:
    started = time.perf_counter()
    caches = assemble.open_caches(recipe, files)
    if caches.latents is None and caches.text is None:
        return caches, 0.0
    rows = np.sort(np.concatenate((dataset.rows, dataset.held)))
    cache.fill_rows(recipe, files, runtime, [(dataset.catalogue, rows, recipe.data)], caches, say)
    return caches, time.perf_counter() - started


def reset_peak(device: torch.device) -> None:
    """Resets the measured peak memory, if the system supports it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    except OSError:
        return


def peak_memory(device: torch.device) -> int:
    """Peak bytes since `reset_peak`: allocated on a GPU, or resident in the process on a CPU. If the system cannot
    reset the peak, that of the process's lifetime."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    try:
        lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    except OSError:
        lines = []
    peak = next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)
    return peak or 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
