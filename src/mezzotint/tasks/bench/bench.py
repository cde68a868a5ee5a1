"""The verb `bench`: how fast a recipe trains here, and what it costs. The real loop over the real data for some steps;
nothing is saved but the numbers: a JSON document, a table, and a plot of loss and step time."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mezzotint import durable
from mezzotint.errors import MezzotintError, RecipeError
from mezzotint.recipe.base import with_values
from mezzotint.recipe.reading.read import Reading, located
from mezzotint.recipe.recipe import Recipe
from mezzotint.reports.plots import BenchRun, plot_bench
from mezzotint.runtimes.base import Launch, Runtime, open_runtime
from mezzotint.shapes import Size
from mezzotint.tasks.bench import _page, _pictures
from mezzotint.tasks.bench._flops import flops_of_samples, peak_flops
from mezzotint.tasks.bench._run import Measured, measure
from mezzotint.tasks.reading import optimizers
from mezzotint.tasks.reading.arguments import parse_with
from mezzotint.tasks.reading.verbs import REPLACE
from mezzotint.tasks.reading.words import Words
from mezzotint.tasks.train.run_files import environment

_FILES = ("bench.json", "bench.txt", "bench.png")
MOST_STEPS = 101
"""Steps of a run whose length says nothing else: those of the published protocol."""

PUBLISHED_TARGETS = {"diffusers-sd": 0.0456}
"""By dialect, the loss that a published benchmark asks for after its 101 steps."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the switches say. steps, warm_up, target: None where nothing is said."""

    steps: int | None
    warm_up: int | None
    fast: bool
    rounds: int
    stand_in: int | None
    target: float | None
    as_json: bool
    out: Path | None
    replaces: bool


def run(arguments: Sequence[str]) -> int:
    """`mezzotint bench RECIPE key=value … [switches]`, or with `--as NAME -- …` in the recipe's place. Returns 0.

    Under torchrun or accelerate launch all processes train together and the first one tells. Raises what `train` does.
    """
    reading, line = parse_with(arguments, "bench")
    options = _options(line)
    if options.out is not None:
        for name in _FILES:
            durable.refuse_taken(options.out / name, remedy="give another folder with --out", replaces=options.replaces)
    launch = Launch.read()
    recipe = located(reading)
    with closing(open_runtime(recipe.run, launch)) as runtime:
        recipe = _with_stand_in(recipe, options.stand_in, runtime)
        settled = optimizers.settle(recipe, runtime.device.type, origin=reading.origin)
        reading = replace(reading, notes=(*reading.notes, *settled.sentences))
        document, measured = bench(reading, settled.recipe, options, runtime, launch)
        if runtime.is_first:
            for text in _written(document, measured, options):
                print(text)
            sys.stdout.flush()
        runtime.barrier()
    return 0


def bench(
    reading: Reading, recipe: Recipe, options: Options, runtime: Runtime, launch: Launch
) -> tuple[dict[str, Any], list[Measured]]:
    """Measures every row and puts the document together. All processes call it; recipe: located, with its data."""
    length = options.steps or recipe.run.steps
    if length is not None:
        _require_timed_steps(options.warm_up, min(length, options.steps or MOST_STEPS))
    arms = _arms(recipe, options, runtime.device)

    def say(text: str) -> None:
        if runtime.is_first and not options.as_json:
            print(text, flush=True)

    measured = []
    for name, settings, _ in arms:
        say(f"{name}: set-up")
        measured.append(measure(name, settings, runtime, steps=options.steps, most=MOST_STEPS, say=say))
    context = _context(recipe, measured, options, runtime)
    document = {
        "recipe": reading.name,
        "notes": list(reading.notes),
        "processes": runtime.world_size,
        "device": context.device,
        "precision": recipe.run.precision,
        "warm_up_steps": context.warm_up,
        "environment": environment(runtime, launch),
        "rows": [_page.row(one, context, changes) for one, (_, _, changes) in zip(measured, arms, strict=True)],
    }
    return document, measured


def _arms(recipe: Recipe, options: Options, device: torch.device) -> list[tuple[str, Recipe, list[str]]]:
    """The rows in the order in which they are measured: name, recipe, and what it changes."""
    arms: list[tuple[str, Recipe, list[str]]] = [("as written", recipe, [])]
    if options.fast:
        faster, changes = faster_than(recipe, device)
        arms += [("fast", faster, changes)] if changes else []
    again = [
        (f"{name}, round {number}", settings, changes)
        for number in range(2, options.rounds + 1)
        for name, settings, changes in arms
    ]
    return arms + again


def faster_than(recipe: Recipe, device: torch.device) -> tuple[Recipe, list[str]]:
    """The recipe with everything switched on that keeps its mathematics: caches of what is frozen, frozen parts in the
    run's own type, and on GPUs compiled blocks. Also the settings that changed, as `key=value`."""
    varied = recipe.data.crop != "center" or recipe.data.flip > 0
    cache: dict[str, Any] = {"latents": True, "text": not recipe.model.trained_encoders}
    if varied:
        cache["crops"] = max(4, recipe.data.cache.crops)
    run: dict[str, Any] = {"frozen_dtype": "same"} if recipe.run.precision != "fp32" else {}
    if device.type == "cuda":
        run["compile"] = True
    changes = [
        f"{path}.{name}={json.dumps(value) if isinstance(value, bool) else value}"
        for path, section, faster in (("data.cache", recipe.data.cache, cache), ("run", recipe.run, run))
        for name, value in faster.items()
        if getattr(section, name) != value
    ]
    values = {f"data.cache.{name}": value for name, value in cache.items()}
    return with_values(recipe, values | {f"run.{name}": value for name, value in run.items()}), changes


def _with_stand_in(recipe: Recipe, count: int | None, runtime: Runtime) -> Recipe:
    if count is None:
        return recipe
    side = recipe.data.resolution
    folder = _pictures.folder_of(recipe.data.cache.path.expanduser(), count, side)
    if runtime.is_first:
        _pictures.draw(folder, count, side)
    runtime.barrier()
    return with_values(recipe, {"data": _pictures.with_stand_in(recipe.data, folder)})


def _context(recipe: Recipe, measured: Sequence[Measured], options: Options, runtime: Runtime) -> _page.Context:
    on_gpu = runtime.device.type == "cuda"
    name = torch.cuda.get_device_name(runtime.device) if on_gpu else "CPU"
    count = len(measured[0].steps)
    _require_timed_steps(options.warm_up, count)
    return _page.Context(
        processes=runtime.world_size,
        device=name,
        is_gpu=on_gpu,
        warm_up=min(5, count // 4) if options.warm_up is None else options.warm_up,
        flops=_flops(recipe, measured) if runtime.is_first else {},
        peak=peak_flops(name, recipe.run.precision, tf32=recipe.run.tf32) if on_gpu else None,
        target=options.target,
    )


def _require_timed_steps(warm_up: int | None, count: int) -> None:
    if warm_up is not None and warm_up >= count:
        raise RecipeError(f"mezzotint bench: --warm-up={warm_up} leaves none of {count} steps to measure", code="E1012")


def _flops(recipe: Recipe, measured: Sequence[Measured]) -> dict[Size, int]:
    """Counted where the model can be described from its configurations; a benchmark does without otherwise."""
    sizes = {size for one in measured for step in one.steps for size in step.sizes}
    try:
        return flops_of_samples(recipe, sorted(sizes, key=lambda s: (s.width, s.height)))
    except MezzotintError:
        return {}


def _written(document: dict[str, Any], measured: Sequence[Measured], options: Options) -> list[str]:
    name = re.sub(r"[^\w.-]+", "-", Path(str(document["recipe"])).stem).strip("-.")
    folder = options.out or durable.free_folder(Path("bench") / (name or "recipe"))
    page = _page.table(document)
    runs = [BenchRun(r["name"], r["step_loss"], r["step_seconds"]) for r in document["rows"]]
    with durable.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    durable.write_new(folder / _FILES[0], durable.json_text(document), replaces=options.replaces)
    durable.write_new(folder / _FILES[1], "\n".join(page) + "\n", replaces=options.replaces)
    title = f"{document['recipe']}: {document['processes']} x {document['device']}"
    plot = plot_bench(runs, title=title, warm_up=document["warm_up_steps"])
    durable.write_new(folder / _FILES[2], plot, replaces=options.replaces)
    if options.as_json:
        return [json.dumps(document, indent=1, ensure_ascii=False)]
    return [*page, "", f"bench.json, bench.txt and bench.png lie in {folder}"]


def _options(line: Words) -> Options:
    """What the switches say. A foreign line has a second row, and the target of the protocol that is published for
    it."""
    target = line.number("--target")
    return Options(
        steps=line.whole("--steps", 1),
        warm_up=line.whole("--warm-up", 0),
        fast="--fast" in line or (line.dialect is not None and "--as-written" not in line),
        rounds=line.whole("--rounds", 1) or 1,
        stand_in=line.whole("--stand-in", 1),
        target=PUBLISHED_TARGETS.get(line.dialect or "") if target is None else target,
        as_json="--json" in line,
        out=line.path("--out"),
        replaces=REPLACE.name in line,
    )
