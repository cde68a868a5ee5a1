"""One measured run for `bench`: the real loop over the real data, without run folder, checkpoints and pictures."""

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
from mezzotint.data.loading.loader import held_out
from mezzotint.data.schedule.plan import Timeline
from mezzotint.recipe.recipe import Recipe
from mezzotint.runtimes.base import Runtime, graphs_compiled
from mezzotint.shapes import Size
from mezzotint.stages import Batch, StepBatches, StepReport
from mezzotint.tasks import assemble
from mezzotint.tasks.assemble import Caches, Dataset
from mezzotint.tasks.cache import cache, class_pictures
from mezzotint.tasks.resolving import length_in_steps, resolve
from mezzotint.training.callbacks.base import Action, Callback
from mezzotint.training.callbacks.validation import Validation
from mezzotint.training.model import TrainableModel
from mezzotint.training.progress import Progress
from mezzotint.weights.model_files import ModelFiles

BLOCK = 10
"""Steps whose speed is one number of the spread."""

_WATCHED = 16  # pictures of the fixed-timestep loss, where none are held out


@dataclass(frozen=True, slots=True)
class Step:
    """One measured step. seconds: by the trainer's clock, waiting for data included. cpu_seconds: of all processes,
    loader workers left out. processed: samples over all processes. distinct: of them, those that their epoch had not
    seen before. sizes: samples by size of their picture. last_micro_loss: mean loss of this process's last
    micro-batch."""

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
    """A run's numbers. setup_seconds: from the start to the first step. cache_seconds: of them, filling caches. memory:
    peak bytes of this process during the steps: of the device, or of the process on a CPU. loader_cpu_seconds: of this
    process's loader workers. fixed_loss: at fixed timesteps and noise, before and after, on pictures that were held
    out, or on some that were trained (watched_are_held says which). pictures: of the data set, held-out ones left
    out."""

    name: str
    recipe: Recipe
    steps: tuple[Step, ...]
    setup_seconds: float
    cache_seconds: float
    memory: int
    loader_cpu_seconds: float
    fixed_loss: tuple[float | None, float | None]
    watched_are_held: bool
    pictures: int
    recompiles: int = 0


@dataclass(frozen=True, slots=True)
class RowLength:
    """How long each row trains. steps: None takes the run's own, at most `most`. warm_up: None leaves out the first
    five, or a quarter of few. rounds: how many blocks follow it, each of which is compared with the other rows' block
    of that number; None for blocks of ten steps."""

    steps: int | None
    most: int
    warm_up: int | None = None
    rounds: int | None = None

    def left_out(self, count: int) -> int:
        """Of so many steps."""
        return min(5, count // 4) if self.warm_up is None else self.warm_up

    def ends(self, count: int) -> list[int]:
        """After how many of so many steps a block ends, that of the warm-up first."""
        timed = count - self.left_out(count)
        block = max(1, min(BLOCK, timed // 3) if self.rounds is None else -(-timed // self.rounds))
        return list(range(self.left_out(count), count, block))


def measure(name: str, recipe: Recipe, runtime: Runtime, length: RowLength, say: Callable[[str], None]) -> Measured:
    """Trains the first steps of a recipe.

    All processes call it together. Raises OutOfMemory E1751, and what data and model raise.
    """
    began = time.perf_counter()
    memory = PeakMemory(runtime.device)
    recipe, notes = class_pictures.as_checked(recipe)  # none is drawn for a benchmark
    for note in notes:
        say(note)
    dataset = assemble.open_dataset(recipe, runtime)
    count = length.steps or min(length.most, length_in_steps(recipe, dataset.timeline))
    files = assemble.open_files(recipe)
    caches, cache_seconds = _filled(recipe, files, dataset, runtime, say)
    remedy = "lower run.micro_batch (the mathematics stays the same)"
    try:
        with assemble.named_shortage(f"{name}: {runtime.device} has not enough memory", remedy):
            return _measured(
                name,
                recipe,
                files,
                runtime,
                dataset,
                caches,
                count,
                memory=memory,
                ends=length.ends(count),
                began=began,
                cache_seconds=cache_seconds,
            )
    finally:
        gc.collect()
        if torch.accelerator.is_available():
            torch.accelerator.empty_cache()


def _measured(  # noqa: PLR0913  everything that a row of the table depends on
    name: str, recipe: Recipe, files: ModelFiles, runtime: Runtime, dataset: Dataset, caches: Caches, count: int, *,
    memory: PeakMemory, ends: Sequence[int], began: float, cache_seconds: float,
) -> Measured:  # fmt: skip
    resolved = resolve(recipe, count)
    model = assemble.open_model(resolved, files, runtime)
    watched = _validation(recipe, runtime, dataset, caches, model)
    before = _fixed_loss(watched, runtime)
    children = _children_seconds()
    reports = _Reports()
    with assemble.open_trainer(resolved, runtime, dataset, caches, model, callbacks=[reports]) as trainer:
        feed = trainer.batches = Feed(trainer.batches, dataset.timeline, buckets.table(recipe.data))
        memory.reset()
        setup = time.perf_counter() - began
        trainer.run()
        feed.mark()
        peak = memory.read()
        cpu = torch.tensor(np.diff(feed.marks), dtype=torch.float32, device=runtime.device)
        cpu_seconds = runtime.total(cpu).tolist()
    return Measured(
        name=name,
        recipe=recipe,
        steps=tuple(_steps(feed, reports.seen, cpu_seconds)),
        setup_seconds=setup,
        cache_seconds=cache_seconds,
        memory=peak,
        loader_cpu_seconds=_children_seconds() - children,
        fixed_loss=(before, _fixed_loss(watched, runtime)),
        watched_are_held=bool(len(dataset.held)),
        pictures=len(dataset.rows),
        recompiles=feed.graphs[-1] - feed.graphs[ends[0] if ends else -1],
    )


@dataclass(slots=True)
class Feed:
    """The loader, and beside it what each step was fed with and when. marks, graphs: CPU seconds, and graphs compiled,
    as each step was asked for."""

    loader: Iterable[StepBatches]
    timeline: Timeline
    table: Sequence[Size]
    marks: list[float] = field(default_factory=list)
    graphs: list[int] = field(default_factory=list)
    shares: list[list[int]] = field(default_factory=list)

    def __iter__(self) -> Iterator[StepBatches]:
        rest = iter(self.loader)
        while True:
            self.mark()
            batches = next(rest, None)
            if batches is None:
                self.marks.pop()
                self.graphs.pop()
                return
            self.shares.append(list(batches.sizes))
            yield batches

    def mark(self) -> None:
        """A step begins, or the last one has ended."""
        self.marks.append(time.process_time())
        self.graphs.append(graphs_compiled())


class _Reports(Callback):
    """Keeps every report, as late as they come: nothing is waited for."""

    follows = True
    on_all_ranks = True

    def __init__(self) -> None:
        self.seen: list[StepReport] = []

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        if report is not None:
            self.seen.append(report)
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
    """Of a step's samples, on all processes: how many their epoch sees for the first time; how many there are of each
    size. table: of buckets."""
    number, place = timeline.locate(step)
    epoch = timeline.epoch(number)
    distinct, sizes = 0, dict[Size, int]()
    for batch in np.flatnonzero(epoch.step_of == place).tolist():
        visits = epoch.visit[epoch.starts[batch] : epoch.starts[batch + 1]]
        distinct += int((visits == 0).sum())
        size = table[int(epoch.bucket[batch])]
        sizes[size] = sizes.get(size, 0) + len(visits)
    return distinct, sizes


def _filled(
    recipe: Recipe, files: ModelFiles, dataset: Dataset, runtime: Runtime, say: Callable[[str], None]
) -> tuple[Caches, float]:
    began = time.perf_counter()
    caches = assemble.open_caches(recipe, files)
    if caches.latents is None and caches.text is None:
        return caches, 0.0
    rows = np.sort(np.concatenate((dataset.rows, dataset.held)))
    cache.fill_rows(recipe, files, runtime, [(dataset.catalogue, rows, recipe.data)], caches, say)
    return caches, time.perf_counter() - began


def _validation(
    recipe: Recipe, runtime: Runtime, dataset: Dataset, caches: Caches, model: TrainableModel
) -> Validation:
    rows = dataset.held if len(dataset.held) else np.sort(dataset.rows)[:_WATCHED]
    batches: Sequence[Batch] = held_out(
        dataset.catalogue,
        rows,
        recipe.data,
        seed=recipe.run.seed,
        device=runtime.device,
        caches=caches,
    )
    return Validation(
        {"loss": batches},
        timesteps=recipe.run.validation.timesteps,
        seed=recipe.run.seed,
        model=model,
        device=runtime.device,
    )


def _fixed_loss(watched: Validation, runtime: Runtime) -> float:
    """Measured by the first process; the others wait."""
    loss = watched.measure()["val/loss"] if runtime.is_first else float("nan")
    runtime.barrier()
    return loss


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class PeakMemory:
    """Watches a device's memory from `reset` on. What earlier rows left behind does not count."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = used_memory(device)

    def reset(self) -> None:
        """The peak so far does not count."""
        reset_peak(self._device)

    def read(self) -> int:
        """Bytes: the peak since `reset`. On a CPU the whole process counts, on a GPU only what was allocated since this
        was made."""
        if self._device.type != "cuda":
            return peak_memory(self._device)
        torch.cuda.synchronize(self._device)
        return peak_memory(self._device) - self._before


def reset_peak(device: torch.device) -> None:
    """The peak of memory begins anew, where the system has one that can."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    except OSError:
        return


def peak_memory(device: torch.device) -> int:
    """Bytes. Where the system keeps no peak that can be reset, that of the process's whole life."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return _of_status("VmHWM:") or 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def used_memory(device: torch.device) -> int:
    """Bytes now; 0 where the system does not tell."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else _of_status("VmRSS:")


def _of_status(name: str) -> int:
    try:
        lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(name)), 0)
