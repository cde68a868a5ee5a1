"""The command `bench`: measures how fast a recipe trains on this machine, and its memory. Runs the real training loop
over the real data for some steps, and writes only figures: a JSON document, a table, and a plot of loss and speed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from mezzotint import durable
from mezzotint.errors import MezzotintError, RecipeError
from mezzotint.reports.plots import BenchRun, plot_bench
from mezzotint.runtimes.base import Launch, Runtime, open_runtime
from mezzotint.settings.base import with_values
from mezzotint.settings.reading.read import Reading, resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.run import is_on
from mezzotint.shapes import Size
from mezzotint.tasks.bench import _page, _stock, synthetic
from mezzotint.tasks.bench._peaks import peak_flops
from mezzotint.tasks.bench.measuring import MAX_STEPS, Measured, measure
from mezzotint.tasks.bench.origin import origin
from mezzotint.tasks.check.flops import flops_of_samples
from mezzotint.tasks.reading import choices, foreign
from mezzotint.tasks.reading.arguments import parse_with
from mezzotint.tasks.reading.command_line import CommandLine
from mezzotint.tasks.reading.commands import REPLACE

_FILES = ("bench.json", "bench.txt", "bench.png")


@dataclass(frozen=True, slots=True)
class Options:
    """The command-line options. steps, warm_up, target: None if not given. arguments: all arguments."""

    arguments: tuple[str, ...] = ()
    steps: int | None = None
    warm_up: int | None = None
    fast: bool = False
    against_stock: bool = False
    stand_in: int | None = None
    target: float | None = None
    as_json: bool = False
    out: Path | None = None
    replaces: bool = False


def run(arguments: Sequence[str]) -> int:
    """`mezzotint bench RECIPE key=value … [options]`, or with `--as NAME -- …` instead of the recipe. Returns 0.

    Under torchrun or accelerate launch all processes train together and the first one prints. Raises what `train` does.
    """
    reading, line = parse_with(arguments, "bench")
    options = _options(line, arguments)
    if options.out is not None:
        for name in _FILES:
            durable.refuse_taken(options.out / name, remedy="give another folder with --out", replaces=options.replaces)
    launch = Launch.read()
    recipe = resolve_paths(reading)
    with closing(open_runtime(recipe.run, launch)) as runtime:
        settled = choices.choose(recipe, runtime.device.type, origin=reading.origin, share=runtime.share)
        reading = replace(reading, notes=(*reading.notes, *settled.sentences))
        recipe = _with_stand_in(settled.recipe, options.stand_in, runtime)
        document = bench(reading, recipe, options, runtime, launch)
        if runtime.is_first:
            print("\n".join(_write(document, options)), flush=True)
        runtime.barrier()
    return 0


def bench(reading: Reading, recipe: Recipe, options: Options, runtime: Runtime, launch: Launch) -> dict[str, Any]:
    """Measures every row, one after the other, and returns the document. All processes call it. recipe: located, with
    its data."""
    length = options.steps or recipe.run.steps
    if length is not None:
        _require_timed_steps(options.warm_up, min(length, options.steps or MAX_STEPS))

    def say(text: str) -> None:
        if runtime.is_first and not options.as_json:
            print(text, flush=True)

    rows = _rows(recipe, options, runtime)
    measured = []
    for name, settings, _ in rows:
        say(f"{name}: set-up")
        if name == _stock.NAME:
            measured.append(_stock.measure(settings, runtime, options.steps))
        else:
            measured.append(measure(name, settings, runtime, options.steps, say))
    context = _context(recipe, measured, options, runtime)
    document_rows = [
        _page.row(measurement, context, changes) for measurement, (_, _, changes) in zip(measured, rows, strict=True)
    ]
    return {
        "recipe": reading.name,
        "notes": list(reading.notes),
        "processes": runtime.world_size,
        "device": context.device,
        "precision": recipe.run.precision,
        "warm_up_steps": context.warm_up,
        **origin(options.arguments, runtime, launch),
        "rows": _page.compare(document_rows, context.warm_up, by_cpu=runtime.device.type != "cuda"),
    }


def _rows(recipe: Recipe, options: Options, runtime: Runtime) -> list[tuple[str, Recipe, list[str]]]:
    """The rows in the order of measuring: name, recipe, and the settings that it changes."""
    rows: list[tuple[str, Recipe, list[str]]] = [("as written", recipe, [])]
    if options.fast:
        faster, changes = faster_than(recipe, runtime.device)
        rows += [("fast", faster, changes)] if changes else []
    if options.against_stock:
        rows += [(_stock.NAME, _stock.as_stock(recipe, runtime), ["the loop of diffusers' train_text_to_image.py"])]
    return rows


def faster_than(recipe: Recipe, device: torch.device) -> tuple[Recipe, list[str]]:
    """The recipe with every optimisation that keeps its mathematics: caches for frozen parts, frozen parts in the run's
    precision, and on GPUs compiled blocks. Also returns the changed settings, as `key=value`."""
    varied = recipe.data.crop not in ("center", "stretch") or recipe.data.flip > 0
    cache: dict[str, Any] = {"latents": True, "text": not recipe.model.trained_encoders}
    if varied:
        cache["crops"] = max(4, recipe.data.cache.crops)
    run: dict[str, Any] = (
        {"frozen_dtype": "same"} if recipe.run.precision != "fp32" and recipe.run.frozen_dtype == "fp32" else {}
    )
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
    below = recipe.data.cache.path.expanduser()
    if runtime.is_first:
        synthetic.with_images(recipe.data, count, below)
    runtime.barrier()
    return with_values(recipe, {"data": synthetic.with_images(recipe.data, count, below)})


def _context(recipe: Recipe, measured: Sequence[Measured], options: Options, runtime: Runtime) -> _page.Context:
    on_gpu = runtime.device.type == "cuda"
    name = torch.cuda.get_device_name(runtime.device) if on_gpu else "CPU"
    count = len(measured[0].steps)
    _require_timed_steps(options.warm_up, count)
    has_tf32 = is_on(recipe.run.tf32, recipe.run.precision != "fp32")
    return _page.Context(
        processes=runtime.world_size,
        device=name,
        warm_up=min(5, count // 4) if options.warm_up is None else options.warm_up,
        flops=_flops(recipe, measured) if runtime.is_first else {},
        peak=peak_flops(name, recipe.run.precision, tf32=has_tf32) if on_gpu else None,
        target=options.target,
    )


def _require_timed_steps(warm_up: int | None, count: int) -> None:
    if warm_up is not None and warm_up >= count:
        raise RecipeError(f"mezzotint bench: --warm-up={warm_up} leaves none of {count} steps to measure", code="E1012")


def _flops(recipe: Recipe, measured: Sequence[Measured]) -> dict[Size, int]:
    """FLOPs by image size; empty if the model cannot be built from its configurations."""
    sizes = {size for measurement in measured for step in measurement.steps for size in step.sizes}
    try:
        return flops_of_samples(recipe, sorted(sizes, key=lambda s: (s.width, s.height)))
    except MezzotintError:
        return {}


def _write(document: dict[str, Any], options: Options) -> list[str]:
    """Writes the files. Returns the lines to print."""
    name = re.sub(r"[^\w.-]+", "-", Path(str(document["recipe"])).stem).strip("-.")
    folder = options.out or durable.free_folder(Path("bench") / (name or "recipe"))
    page = _page.table(document)
    runs = [BenchRun(r["name"], r["step_loss"], r["step_seconds"], r["step_samples"]) for r in document["rows"]]
    title = f"{document['recipe']}: {document['processes']} x {document['device']}"
    plot = plot_bench(runs, title=title, warm_up=document["warm_up_steps"])
    with durable.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    contents: tuple[str | bytes, ...] = (durable.json_text(document), "\n".join(page) + "\n", plot)
    for file, content in zip(_FILES, contents, strict=True):
        durable.write_new(folder / file, content, replaces=options.replaces)
    if options.as_json:
        return [json.dumps(document, indent=1, ensure_ascii=False)]
    return [*page, "", f"results in {folder}: {', '.join(_FILES)}"]


def _options(line: CommandLine, arguments: Sequence[str] = ()) -> Options:
    """The options of a command line. arguments: all its arguments. A command line of another trainer implies a second
    row and the target loss of the protocol that is published for it."""
    against, target = line.get("--against") or "", line.get_float("--target")
    if against not in ("", _stock.NAME):
        raise RecipeError(f"mezzotint bench: --against can only be {_stock.NAME}, got {against!r}", code="E1012")
    if target is None and line.dialect is not None:
        target = foreign.find_dialect(line.dialect).published_loss
    return Options(
        arguments=tuple(arguments),
        steps=line.get_integer("--steps", 1),
        warm_up=line.get_integer("--warm-up", 0),
        fast="--fast" in line or (line.dialect is not None and "--as-written" not in line),
        against_stock=bool(against),
        stand_in=line.get_integer("--stand-in", 1),
        target=target,
        as_json="--json" in line,
        out=line.get_path("--out"),
        replaces=REPLACE.name in line,
    )
