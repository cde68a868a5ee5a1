"""The verb `bench`: how fast a recipe trains here, and what it costs. The real loop over the real data for some steps;
nothing is saved but the numbers: a JSON document, a table, and a plot of loss and step time."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mezzotint import durable
from mezzotint.errors import MezzotintError, RecipeError
from mezzotint.recipe.base import with_values
from mezzotint.recipe.reading.read import Reading, located
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.sections.run import is_on
from mezzotint.reports.plots import BenchRun, plot_bench
from mezzotint.runtimes.base import Launch, Runtime, open_runtime
from mezzotint.shapes import Size
from mezzotint.tasks.bench import _data, _gpu, _page, _pictures, _stock
from mezzotint.tasks.bench._flops import flops_of_samples, peak_flops
from mezzotint.tasks.bench._run import BLOCK, Measured, RowLength, measure
from mezzotint.tasks.bench.origin import origin
from mezzotint.tasks.reading import foreign, settling
from mezzotint.tasks.reading.arguments import parse_with
from mezzotint.tasks.reading.command_line import CommandLine
from mezzotint.tasks.reading.commands import REPLACE

_FILES = ("bench.json", "bench.txt", "bench.png")
MOST_STEPS = 101
"""Steps of a run whose length says nothing else: those of the published protocol."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the switches say. steps, warm_up, rounds, target: None where nothing is said. against: "stock" or "".
    words: of the whole line."""

    words: tuple[str, ...]
    steps: int | None
    warm_up: int | None
    fast: bool
    rounds: int | None
    against: str
    data: bool
    gpu: bool
    dry_run: bool
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
    options = _options(line, arguments)
    if options.out is not None:
        for name in _FILES:
            durable.refuse_taken(options.out / name, remedy="give another folder with --out", replaces=options.replaces)
    launch = Launch.read()
    recipe = located(reading)
    if options.gpu:
        return _check_gpu(reading, recipe, options)
    with closing(open_runtime(recipe.run, launch)) as runtime:
        settled = settling.settle(recipe, runtime.device.type, origin=reading.origin, share=runtime.share)
        reading = replace(reading, notes=(*reading.notes, *settled.sentences))
        recipe = _with_stand_in(settled.recipe, options.stand_in, runtime)
        if options.data:
            return _of_data(reading, recipe, options, runtime, launch)
        document, measured = bench(reading, recipe, options, runtime, launch)
        if runtime.is_first:
            for text in _written(document, measured, options):
                print(text)
            sys.stdout.flush()
        runtime.barrier()
    return 0


def _check_gpu(reading: Reading, recipe: Recipe, options: Options) -> int:
    """`--gpu`. Returns 0, or 1 where a check failed."""
    if not options.dry_run and not torch.cuda.is_available():
        raise RecipeError(
            "mezzotint bench --gpu: torch sees no GPU here. Run it on a machine with a GPU, or add --dry-run",
            code="E1861",
        )
    file = (options.out or durable.free_folder(Path("bench") / "gpu")) / "gpu.json"

    def say(text: str) -> None:
        print(text, flush=True)

    def measure_rows(of: Recipe, steps: int) -> list[dict[str, Any]]:
        arguments = replace(options, steps=steps, fast=True, as_json=True)
        with closing(open_runtime(of.run, Launch())) as runtime:
            return list(bench(reading, of, arguments, runtime, Launch())[0]["rows"])

    recipe, sentences = settling.settle_seeds(recipe)
    for sentence in sentences:
        say(sentence)
    with closing(open_runtime(recipe.run, Launch())) as runtime:
        about = origin(options.words, runtime, Launch())
    with tempfile.TemporaryDirectory(prefix="mezzotint-gpu-") as name:
        prepared = _gpu.prepare(recipe, Path(name), is_small=options.dry_run)
        with durable.storage_errors(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)
        card = _gpu.Card(prepared, options.dry_run, Path(name), measure_rows)
        document = _gpu.check_card(card, about, say, partial(durable.write_json, file))
    print("\n".join([*_gpu.table(document), "", f"the results are in {file}"]))
    return int(any(part["ok"] is False for part in document["parts"].values()))


def _of_data(reading: Reading, recipe: Recipe, options: Options, runtime: Runtime, launch: Launch) -> int:
    """`--data`: the rows of the data path alone."""
    if runtime.is_first:
        rounds, steps = options.rounds or _data.ROUNDS, options.steps or BLOCK
        rows = _data.rows(recipe, runtime, steps=steps, rounds=rounds, say=lambda text: None)
        document = {"recipe": reading.name, **origin(options.words, runtime, launch), "rows": rows}
        folder = options.out or durable.free_folder(Path("bench") / "data")
        with durable.storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        text = durable.json_text(document)
        durable.write_new(folder / "bench-data.json", text)
        print(text if options.as_json else "\n".join([*_data.table(document), "", f"bench-data.json lies in {folder}"]))
    runtime.barrier()
    return 0


def bench(
    reading: Reading, recipe: Recipe, options: Options, runtime: Runtime, launch: Launch
) -> tuple[dict[str, Any], list[Measured]]:
    """Measures every row and puts the document together. All processes call it; recipe: located, with its data."""
    length = options.steps or recipe.run.steps
    if length is not None:
        _require_timed_steps(options.warm_up, min(length, options.steps or MOST_STEPS))
    arms = _arms(recipe, options, runtime)

    def say(text: str) -> None:
        if runtime.is_first and not options.as_json:
            print(text, flush=True)

    measured = _measured(arms, options, runtime, say)
    context = _context(recipe, measured, options, runtime)
    rows = [_page.row(one, context, changes) for one, (_, _, changes) in zip(measured, arms, strict=True)]
    ends = RowLength(options.steps, MOST_STEPS, context.warm_up, options.rounds).ends(len(measured[0].steps))
    document = {
        "recipe": reading.name,
        "notes": list(reading.notes),
        "processes": runtime.world_size,
        "device": context.device,
        "precision": recipe.run.precision,
        "warm_up_steps": context.warm_up,
        **origin(options.words, runtime, launch),
        "rows": _page.compared(rows, ends, by_cpu=not context.is_gpu),
    }
    return document, measured


def _measured(
    arms: Sequence[tuple[str, Recipe, list[str]]], options: Options, runtime: Runtime, say: Callable[[str], None]
) -> list[Measured]:
    """Of every row, one after the other."""
    length = RowLength(options.steps, MOST_STEPS, options.warm_up, options.rounds)
    measured = []
    for name, settings, _ in arms:
        say(f"{name}: set-up")
        is_stock = name == _stock.NAME
        measured.append(
            _stock.measure(settings, runtime, length) if is_stock else measure(name, settings, runtime, length, say)
        )
    return measured


def _arms(recipe: Recipe, options: Options, runtime: Runtime) -> list[tuple[str, Recipe, list[str]]]:
    """The rows in the order in which they are measured: name, recipe, and what it changes."""
    arms: list[tuple[str, Recipe, list[str]]] = [("as written", recipe, [])]
    if options.fast:
        faster, changes = faster_than(recipe, runtime.device)
        arms += [("fast", faster, changes)] if changes else []
    if options.against:
        arms += [(_stock.NAME, _stock.as_stock(recipe, runtime), ["the loop of diffusers' train_text_to_image.py"])]
    return arms


def faster_than(recipe: Recipe, device: torch.device) -> tuple[Recipe, list[str]]:
    """The recipe with everything switched on that keeps its mathematics: caches of what is frozen, frozen parts in the
    run's own type, and on GPUs compiled blocks. Also the settings that changed, as `key=value`."""
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
        warm_up=RowLength(None, MOST_STEPS, options.warm_up).left_out(count),
        flops=_flops(recipe, measured) if runtime.is_first else {},
        peak=peak_flops(name, recipe.run.precision, tf32=is_on(recipe.run.tf32, recipe.run.precision != "fp32"))
        if on_gpu
        else None,
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
    runs = [BenchRun(r["name"], r["step_loss"], r["step_seconds"], r["step_samples"]) for r in document["rows"]]
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


def _against(line: CommandLine) -> str:
    word = line.get("--against") or ""
    if word not in ("", _stock.NAME):
        raise RecipeError(f"mezzotint bench: --against knows {_stock.NAME} alone, got {word!r}", code="E1012")
    return word


def _options(line: CommandLine, words: Sequence[str] = ()) -> Options:
    """What the switches say. words: of the whole line. A foreign line has a second row, and the target of the protocol
    that is published for it."""
    target = line.number("--target")
    if target is None and line.dialect is not None:
        target = foreign.dialect(line.dialect).published_loss
    return Options(
        words=tuple(words),
        steps=line.whole("--steps", 1),
        warm_up=line.whole("--warm-up", 0),
        fast="--fast" in line or (line.dialect is not None and "--as-written" not in line),
        rounds=line.whole("--rounds", 1),
        against=_against(line),
        data="--data" in line,
        gpu="--gpu" in line,
        dry_run="--dry-run" in line,
        stand_in=line.whole("--stand-in", 1),
        target=target,
        as_json="--json" in line,
        out=line.path("--out"),
        replaces=REPLACE.name in line,
    )
