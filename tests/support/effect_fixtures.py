"""Fixtures of `tests/effects`: a run prepared from a command line as `mezzotint train` does it and stopped before its
first step, and a loader without a model.

Every row goes through the recipe, so that it shows the whole way of a setting: from its name to what it changes.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import Tensor

from mezzotint.data.loading.loader import Loader
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch, open_runtime
from mezzotint.runtimes.single import Runtime
from mezzotint.settings.reading.read import read_text, resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.stages import Batch, StepBatches, StepReport
from mezzotint.tasks import assemble
from mezzotint.tasks.reading.arguments import parse
from mezzotint.tasks.reading.continuing import folder_of
from mezzotint.tasks.train.job import Job, RunStart
from mezzotint.tasks.train.prepare import prepare as made_ready
from mezzotint.training.interrupts import Interrupts
from support.loading import open_loader

COMMON: dict[str, Any] = {
    "data__cache__latents": True,
    "data__cache__text": True,
    "data__holdout__fraction": 0.3,
    "sample__prompts": ["a red circle"],
    "sample__steps": 1,
    "sample__guidance": 1,
}
"""Of a short run that samples and holds samples out, for rows on what runs write."""


def names(folder: Path) -> list[str]:
    """The names of a folder's entries, sorted, without the model cards of files."""
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".md")


@pytest.fixture(autouse=True)
def restore_process_state() -> Iterator[None]:
    """Threads and determinism belong to the process; each test restores them."""
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


@pytest.fixture(autouse=True, scope="module")
def fast_start() -> Iterator[None]:
    """A start that does not wait for the disk, writes YAML with libyaml and looks up package versions once; these take
    half of its time otherwise, and are tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(yaml, "SafeDumper", getattr(yaml, "CSafeDumper", yaml.SafeDumper))
        patch.setattr(importlib.metadata, "version", functools.cache(importlib.metadata.version))
        yield


@dataclass
class Step:
    """One optimizer step and what it moved. grads: of the loss, before clipping; mean, square: of the optimizer."""

    report: StepReport
    batches: StepBatches
    before: dict[str, Tensor]
    after: dict[str, Tensor]
    grads: dict[str, Tensor]
    mean: dict[str, Tensor]
    square: dict[str, Tensor]

    def moved(self, name: str) -> Tensor:
        return self.after[name] - self.before[name]

    def largest(self, part: str) -> float:
        """The longest way that any weight of a part has gone."""
        return max(float(self.moved(name).abs().max()) for name in self.after if name.startswith(f"{part}/"))


class Prepared:
    """A run before its first step."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.recipe, self.folder, self.trainer = job.resolved.recipe, job.start.folder, job.trainer
        self.family = job.model.family
        self.objective = job.model.objective
        self._batches: Iterator[StepBatches] | None = None

    def next_batches(self) -> StepBatches:
        if self._batches is None:
            self._batches = iter(self.job.trainer.batches)
        return next(self._batches)

    def step(self) -> Step:
        """The next step of the run."""
        trainer, batches = self.trainer, self.next_batches()
        grads: dict[str, Tensor] = {}

        def keep(name: str) -> Callable[[Tensor], None]:
            return lambda parameter: grads.__setitem__(name, parameter.grad.float().clone())

        hooks = [p.register_post_accumulate_grad_hook(keep(name)) for name, p in trainer.model.trained.items()]
        before = copies(trainer.model.update.masters)
        report = trainer.train_step(batches).result()
        for hook in hooks:
            hook.remove()
        tensors = copies(trainer.model.update.tensors())

        def named(start: str) -> dict[str, Tensor]:
            return {name.removeprefix(start): t for name, t in tensors.items() if name.startswith(start)}

        return Step(report, batches, before, named("w/"), grads, named("opt.mean/"), named("opt.square/"))


def copies(tensors: Any) -> dict[str, Tensor]:
    return {name: t.detach().clone() for name, t in tensors.items()}


@pytest.fixture
def prepare(shared_world: Any) -> Iterator[Callable[..., Prepared]]:
    """`prepare(optim__lr=1e-3, …)`: a run before its first step, also with options of the command; over cached latents
    and text unless a row says otherwise, because encoders cost time."""
    with ExitStack() as stack:

        def make(*options: str, **settings: Any) -> Prepared:
            name = f"ready-{len(list(shared_world.root.glob('*.yaml')))}"
            words = shared_world.words(name, **{"data__cache__latents": True, "data__cache__text": True} | settings)
            reading = parse([*words, *options], "train")
            recipe = resolve_paths(reading)
            runtime = open_runtime(recipe.run, Launch())
            folder = RunFolder(folder_of(reading, recipe)).open()
            job = made_ready(RunStart(reading, recipe, Launch(), runtime, folder, Interrupts()))
            stack.callback(job.close)
            return Prepared(job)

        yield make


@dataclass
class Feed:
    """A data set as a run sees it, without a model."""

    recipe: Recipe
    dataset: assemble.Dataset
    loader: Loader

    @property
    def catalogue(self) -> Any:
        return self.dataset.catalogue

    @property
    def report(self) -> Any:
        return self.dataset.catalogue.report

    def batches(self) -> list[Batch]:
        return [batch for step in self.loader for batch in step.batches]

    def epoch(self, number: int = 0) -> Any:
        return self.dataset.timeline.epoch(number)


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Callable[..., Feed]]:
    """`feed(folder, crop="random", …)`: the loader over a folder, or over several sets, each a folder or an entry of
    `data.sets`; one epoch of it unless `steps` is given. Names are those of the section `data`; `a__b=c` stands for
    `data.a.b`."""
    with ExitStack() as stack:

        def make(
            *folders: Path | dict[str, Any],
            steps: int | None = None,
            accumulation: int = 1,
            seed: int = 0,
            **settings: Any,
        ) -> Feed:
            plain: dict[str, Any] = {"resolution": 32, "buckets__step": 8, "workers": 0}
            if len(folders) == 1 and isinstance(folders[0], Path):
                plain["path"] = str(folders[0])
            else:
                sets = [folder if isinstance(folder, dict) else {"path": folder} for folder in folders]
                plain["sets"] = json.dumps(sets, default=str)
            data: dict[str, Any] = {"cache": {"path": str(tmp_path / "cache")}}
            for key, value in (plain | settings).items():
                *sections, field = key.split("__")
                place = data
                for section in sections:
                    place = place.setdefault(section, {})
                place[field] = value
            words = [f"{path}={_word(value)}" for path, value in _flat(data, "data.")]
            recipe = read_text("schema: 1", overrides=words).recipe
            dataset = assemble.open_dataset(recipe, Runtime(torch.device("cpu"), Launch(), recipe.run))
            loader = open_loader(
                dataset.catalogue,
                dataset.rows,
                recipe.data,
                accumulation=accumulation,
                seed=seed,
                start_step=0,
                last_step=steps or dataset.timeline.steps_of(0),
            )
            stack.callback(loader.close)
            return Feed(recipe, dataset, loader)

        yield make


def _flat(tree: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _word(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case list() | tuple():
            return f"[{', '.join(_quoted(item) for item in value)}]"
        case _:
            return str(value)


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


@pytest.fixture
def noisy() -> Callable[..., Path]:
    """`noisy(folder, [(32, 32), …])`: images of noise with captions, so that every crop and flip is another one."""

    def draw(folder: Path, sizes: list[tuple[int, int]]) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for number, (width, height) in enumerate(sizes):
            rng = np.random.Generator(np.random.Philox(key=number))
            pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number:03d}.png")
            (folder / f"{number:03d}.txt").write_text(f"image {number}")
        return folder

    return draw
