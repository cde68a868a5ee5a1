"""What the way of the data costs: listing, planning, decoding, and reading what a cache holds. No step is trained."""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.loading.loader import Loader
from mezzotint.data.schedule.plan import plan
from mezzotint.recipe.base import with_values
from mezzotint.recipe.recipe import Recipe
from mezzotint.runtimes.base import Runtime
from mezzotint.tasks import assemble
from mezzotint.tasks.assemble import Caches, Dataset
from mezzotint.tasks.cache import cache

Row = dict[str, Any]
ROUNDS = 3


def rows(recipe: Recipe, runtime: Runtime, *, steps: int, rounds: int, say: Callable[[str], None]) -> list[Row]:
    """Each with the median of some rounds, lowest and highest. steps: of which batches are read. CPU seconds are of
    this process, so pictures are decoded in it."""
    here = with_values(recipe, {"data.workers": 0})
    dataset = assemble.open_dataset(here, runtime)
    files = assemble.open_files(here)
    measured = [
        _row("listing, headers and captions", len(dataset.catalogue), rounds, lambda: _listed(here)),
        _row("plan of an epoch", len(dataset.rows), rounds, lambda: _planned(here, dataset)),
    ]
    none, some = Caches(), assemble.open_caches(with_values(here, {"data.cache.latents": True}), files)
    samples = sum(batches.count for batches in _read(here, dataset, none, steps, runtime))
    measured.append(
        _row(
            "pictures decoded and placed", samples, rounds, lambda: _exhaust(_read(here, dataset, none, steps, runtime))
        )
    )
    say("filling the cache")
    began = time.process_time()
    cached = with_values(here, {"data.cache.latents": True})
    cache.fill_rows(cached, files, runtime, [(dataset.catalogue, dataset.rows, cached.data)], some, lambda text: None)
    filled = time.process_time() - began
    measured.append(_figures("cache filled, what was missing", len(dataset.rows), [filled], [filled]))
    measured.append(
        _row("cached latents read", samples, rounds, lambda: _exhaust(_read(cached, dataset, some, steps, runtime)))
    )
    return measured


def table(document: dict[str, Any]) -> list[str]:
    """The page, line by line."""
    lines = [f"mezzotint bench {document['recipe']} --data", ""]
    lines.append(f"{'':<34}{'a CPU second':>14}{'lowest':>12}{'highest':>12}{'a second':>12}")
    for row in document["rows"]:
        cpu, wall = row["per_cpu_second"], row["per_second"]
        lines.append(
            f"{row['name']:<34}{cpu['median']:>14,.4g}{cpu['lowest']:>12,.4g}{cpu['highest']:>12,.4g}"
            f"{wall['median']:>12,.4g}"
        )
    return [*lines, "", f"samples a second; the median of {ROUNDS} rounds or of --rounds, of this process alone"]


def _row(name: str, count: int, rounds: int, work: Callable[[], None]) -> Row:
    cpu, wall = [], []
    for _ in range(rounds):
        marks = time.process_time(), time.perf_counter()
        work()
        cpu.append(time.process_time() - marks[0])
        wall.append(time.perf_counter() - marks[1])
    return _figures(name, count, cpu, wall)


def _figures(name: str, count: int, cpu: list[float], wall: list[float]) -> Row:
    figures: Row = {"name": name, "samples": count}
    for key, seconds in (("per_cpu_second", cpu), ("per_second", wall)):
        speeds = sorted(count / max(one, 1e-9) for one in seconds)
        figures[key] = {"median": statistics.median(speeds), "lowest": speeds[0], "highest": speeds[-1]}
    return figures


def _listed(recipe: Recipe) -> None:
    with tempfile.TemporaryDirectory() as folder:
        catalogues.build(recipe.data, Path(folder))


def _planned(recipe: Recipe, dataset: Dataset) -> None:
    plan(dataset.timeline.columns, recipe.data, accumulation=recipe.optim.accumulation, seed=recipe.run.seed, epoch=0)


def _read(recipe: Recipe, dataset: Dataset, caches: Caches, steps: int, runtime: Runtime) -> Iterator[Any]:
    loader = Loader(
        dataset.catalogue,
        dataset.rows,
        recipe.data,
        dataset.timeline,
        range(steps),
        device=runtime.device,
        caches=caches,
    )
    try:
        for batches in loader:
            for _ in itertools.chain(batches.batches):
                pass
            yield batches
    finally:
        loader.close()


def _exhaust(batches: Iterator[Any]) -> None:
    for _ in batches:
        pass
