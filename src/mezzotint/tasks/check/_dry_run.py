"""The dry pass of `check`: two real steps with real batches, to say how long the run would take. Nothing of the run is
touched: what a cache would hold is made in a folder that goes again, and the trained weights are thrown away."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from mezzotint.data.loading.loader import Loader
from mezzotint.errors import OutOfMemory
from mezzotint.recipe.advice import less_memory
from mezzotint.recipe.recipe import Recipe
from mezzotint.runtimes.base import Launch, Runtime, open_runtime
from mezzotint.stages import StepReport
from mezzotint.tasks import assemble
from mezzotint.tasks.assemble import Caches, Dataset
from mezzotint.tasks.cache import cache
from mezzotint.training.progress import Progress
from mezzotint.training.trainer import Trainer
from mezzotint.weights.model_files import ModelFiles

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
        """The last step's: the first one warms up."""
        return self.seconds[-1]

    @property
    def samples_a_second(self) -> float:
        """Over all processes."""
        return self.samples / self.seconds_a_step


def dry_run(recipe: Recipe, dataset: Dataset, steps: int, *, processes: int = 1) -> DryRun:
    """Runs the first two steps (one, where the run has one) as the first of so many processes would, alone.

    Raises OutOfMemory E1751 when the device is too small, and whatever loading and encoding raise.
    """
    with tempfile.TemporaryDirectory(prefix="mezzotint-check-") as folder, _named_shortage(recipe):
        alone = _apart(recipe, Path(folder))
        with closing(open_runtime(alone.run, Launch())) as runtime:
            files = assemble.open_files(alone)
            caches = _caches(alone, files, dataset, runtime, min(STEPS, steps))
            trainer, loader = _trainer(alone, files, dataset, caches, runtime, min(STEPS, steps), processes)
            with closing(loader):
                return _timed(trainer, loader, runtime)


def _apart(recipe: Recipe, folder: Path) -> Recipe:
    kept = recipe.data.cache.model_copy(update={"path": folder})
    data = recipe.data.model_copy(update={"cache": kept})
    run = recipe.run.model_copy(update={"runtime": "single", "folder": folder / "run"})
    return recipe.model_copy(update={"data": data, "run": run})


def _caches(recipe: Recipe, files: ModelFiles, dataset: Dataset, runtime: Runtime, steps: int) -> Caches:
    """Caches that hold what these steps read, and nothing else."""
    caches = assemble.open_caches(recipe, files)
    if caches.latents is not None or caches.text is not None:
        cache.fill(
            dataset.catalogue,
            _rows_of(dataset, steps),
            recipe.data,
            latents=caches.latents,
            text=caches.text,
            load=assemble.encoders(recipe, files, runtime.device),
            device=runtime.device,
            say=lambda text: None,
        )
    return caches


def _rows_of(dataset: Dataset, steps: int) -> NDArray[np.int32]:
    """The rows of the catalogue that the first steps visit."""
    seen = []
    for step in range(steps):
        number, place = dataset.timeline.locate(step)
        epoch = dataset.timeline.epoch(number)
        for batch in np.flatnonzero(epoch.step_of == place):
            seen.append(epoch.order[epoch.starts[batch] : epoch.starts[batch + 1]])
    return np.unique(dataset.rows[np.concatenate(seen)]).astype(np.int32)


def _trainer(
    recipe: Recipe,
    files: ModelFiles,
    dataset: Dataset,
    caches: Caches,
    runtime: Runtime,
    steps: int,
    processes: int,
) -> tuple[Trainer, Loader]:
    model = assemble.open_model(recipe, files, runtime, steps=steps)
    loader = Loader(
        dataset.catalogue,
        dataset.rows,
        recipe.data,
        accumulation=recipe.optim.accumulation,
        seed=recipe.run.seed,
        start_step=0,
        last_step=steps,
        rank=0,
        world_size=processes,
        micro_batch=recipe.run.micro_batch,
        device=runtime.device,
        latents=caches.latents,
        text=caches.text,
    )
    trainer = Trainer(
        family=model.family,
        objective=model.objective,
        batches=loader,
        update=model.update,
        runtime=runtime,
        precision=model.precision,
        scale=model.scale,
        trained=model.trained,
        optim=model.optim,
        rate_factor=assemble.rate_factor(recipe),
        run_settings=recipe.run,
        attention=recipe.model.attention,
        observers=(),
        progress=Progress(last_step=steps),
        epoch_ends=lambda step: False,
        save=lambda trainer: None,
        export=lambda trainer: None,
        asked=lambda: 0,
        bad_step=lambda report: None,
        warn=lambda text: None,
    )
    return trainer, loader


def _timed(trainer: Trainer, loader: Loader, runtime: Runtime) -> DryRun:
    if runtime.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(runtime.device)
    seconds: list[float] = []
    report: StepReport | None = None
    began = time.perf_counter()
    for batches in loader:
        report = trainer.step(batches).resolve(0)  # waits for the device
        now = time.perf_counter()
        seconds.append(now - began)
        began = now
    assert report is not None
    peak = torch.cuda.max_memory_allocated(runtime.device) if runtime.device.type == "cuda" else 0
    return DryRun(tuple(seconds), report.samples, peak, str(runtime.device))


@contextmanager
def _named_shortage(recipe: Recipe) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            f"the dry pass ran out of memory ({str(error).splitlines()[0]}); {less_memory(recipe)}",
            code="E1751",
        ) from error
