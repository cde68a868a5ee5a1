"""The command `doctor`: examines a data set, from a folder or a recipe, image by image before training; without
arguments, this machine. Each finding has advice. Nothing is changed; the index of the data set is kept in the cache.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from mezzotint import durable
from mezzotint.data.files.listing import is_remote
from mezzotint.data.findings import of_data
from mezzotint.data.findings.finding import Finding, in_order
from mezzotint.data.findings.sets import find_sets, summarize_sets
from mezzotint.errors import RecipeError, escape_line
from mezzotint.run_folder import RunFolder
from mezzotint.settings.reading.read import Reading, read_text, resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.doctor import _batches, _captions, _examining, _images, _machine, _pairs, _report
from mezzotint.tasks.doctor._examining import ExaminedData
from mezzotint.tasks.doctor._report import Report
from mezzotint.tasks.reading import choices, command_line, continuing, hub
from mezzotint.tasks.reading.commands import REPLACE
from mezzotint.tasks.reading.continuing import folder_of
from mezzotint.tasks.train import resume

_RECIPES = (".yaml", ".yml", ".json", "")


def run(arguments: Sequence[str]) -> int:
    """`mezzotint doctor [DATA …|RECIPE] [key=value …] [--json] [--html=FILE] [--processes=N]`. Returns 2 if there is a
    finding to mend, otherwise 0.

    Raises RecipeError for arguments or a recipe that cannot be read, E1014 for an HTML file that exists; DatasetError
    for data that cannot be opened at all.
    """
    line = command_line.parse(arguments, "doctor")
    processes = line.get_integer("--processes", 1)
    html_path, replaces = line.get_path("--html"), REPLACE.name in line
    if html_path is not None:
        durable.refuse_taken(html_path, replaces=replaces)  # before the work
    examined: ExaminedData | None = None
    if line.plain:
        report, examined = examine(*_settle_seeds(read(line.plain)), () if processes is None else (processes,))
    else:
        report = _machine.report(os.environ, resolve_paths(read_text("schema: 1\n")).data.cache.path.expanduser())
    if html_path is not None:
        durable.write_new(html_path, _report.html(report, examined), replaces=replaces)
    if "--json" in line:
        print(json.dumps(report.document(), indent=1, ensure_ascii=False))
    else:
        print("\n".join(map(escape_line, _report.text(report))))
    return report.exit_status


def read(plain: Sequence[str]) -> Reading:
    """The recipe from the arguments, or a recipe for the folders of images that they name, with settings."""
    sources = [argument for argument in plain if not command_line.is_setting(argument)]
    settings = [argument for argument in plain if command_line.is_setting(argument)]
    if not sources or not all(map(is_data, sources)):
        name, *others = plain
        try:
            reading = continuing.read_source(name, others)
        except RecipeError as error:
            if error.code != "E1011" or Path(name).suffix:
                raise
            raise RecipeError(f"there is no folder {name}, and {error.message}", code="E1011") from None
        return hub.with_folders(continuing.with_run(reading), insist=False)
    if not any(argument.startswith("data.format=") for argument in settings):
        settings += _format_of(Path(sources[0]).expanduser())
    paths = [source if is_remote(source) else str(Path(source).expanduser().absolute()) for source in sources]
    return read_text(f"schema: 1\ndata: {{path: {json.dumps(paths)}}}\n", sources[0], settings)


def is_data(source: str) -> bool:
    """Whether an argument names data, not a recipe: a folder other than a run's, object storage, a file of samples."""
    path = Path(source).expanduser()
    if is_remote(source):
        return True
    return (path.is_dir() and not continuing.is_run(path)) or (path.is_file() and path.suffix.lower() not in _RECIPES)


def _format_of(folder: Path) -> list[str]:
    """The setting of a folder's format, where its files indicate another than the default."""
    if any((folder / f"metadata.{ending}").is_file() for ending in ("jsonl", "csv", "parquet")):
        return ["data.format=metadata"]
    return ["data.format=webdataset"] if folder.is_dir() and any(folder.glob("*.tar")) else []


def _settle_seeds(reading: Reading) -> tuple[Recipe, list[str]]:
    """The recipe with the seeds of its run, or new ones, and notes about them."""
    recipe = resolve_paths(reading)
    if -1 not in (recipe.run.seed, recipe.sample.seed):
        return recipe, []
    recorded = resume.recorded_state(recipe.run.resume, RunFolder(folder_of(reading, recipe)))
    return choices.choose_seeds(recipe, recorded.recipe if recorded else None)


def examine(recipe: Recipe, notes: Sequence[str] = (), processes: Sequence[int] = ()) -> tuple[Report, ExaminedData]:
    """Examines the data of a located recipe. notes: about the recipe, for the report. Raises as
    `_examining.open_data`."""
    examined, refused = _examining.open_data(recipe)
    no_library = _examining.examine_images(examined)
    findings = [*refused, *([no_library] if no_library else []), *_all_findings(examined, processes)]
    dataset, data = examined.dataset, examined.recipe.data
    held = len(dataset.held) + sum(len(data_set.rows) for data_set in dataset.sets.values())
    about = (
        ("data", ", ".join(map(str, data.paths))), ("samples", f"{len(dataset.rows):,} trained, {held:,} held out"),
        ("format", data.format), ("resolution", ", ".join(map(str, data.resolution))),
        ("model", str(examined.recipe.model.path)),
        *((("note", "; ".join(notes)),) if notes else ()),
    )  # fmt: skip
    return Report(about, in_order(findings)), examined


def _all_findings(examined: ExaminedData, processes: Sequence[int]) -> Iterator[Finding]:
    lost, unmeasured = _captions.find_truncated(examined)
    yield from unmeasured
    dataset = examined.dataset
    yield from of_data(
        dataset.catalogue, examined.recipe.data, rows=dataset.rows, held=dataset.held,
        others=[data_set.catalogue for data_set in dataset.sets.values()], lost=lost,
    )  # fmt: skip
    data = examined.recipe.data
    if of_sets := summarize_sets(dataset.catalogue, dataset.rows, dataset.timeline.columns, data):
        yield find_sets(of_sets)
    yield from _images.of_likeness(examined)
    yield from _pairs.of_alignment(examined)
    yield from _captions.of_captions(examined)
    yield from _batches.of_batches(examined.recipe, examined.dataset, processes)
    yield from _images.of_conversions(examined)
