"""Adds an entry to a queue: a recipe that gives the same run from any folder."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mezzotint.data.files.listing import is_remote
from mezzotint.errors import RecipeError, WeightsError, escape_line
from mezzotint.settings.base import with_values
from mezzotint.settings.reading.read import Reading, digest_of, locate_all_paths, read_text
from mezzotint.settings.reading.writing import as_yaml
from mezzotint.settings.recipe import Recipe, plain_values
from mezzotint.tasks.queue.entries import LONGEST, Queue, QueueEntry
from mezzotint.tasks.reading.continuing import folder_of, linked_folders
from mezzotint.tasks.reading.missing import find_missing_data

_RESUME = ("auto", "latest", "never")


def add(queue: Queue, reading: Reading, arguments: Sequence[str], folder: Path) -> QueueEntry:
    """Adds a recipe as the last entry and returns it. arguments: of `mezzotint train`, for the comment. folder: the
    folder that relative run folders start from.

    Raises RecipeError: E1201 for data that do not exist, E1960 for a line that trains nothing, E1961 for a run folder
    that another entry trains into; WeightsError E1401 for a model that does not exist; StorageError.
    """
    if reading.verb == "cache":
        raise RecipeError(
            "this command line only encodes, and a queue trains; run it with mezzotint cache", code="E1960"
        )
    problems = list(find_missing_data(reading, folder))
    if problems:
        raise RecipeError(reading.name, problems=reading.add_lines(problems))
    run = Path(os.path.realpath(folder_of(reading, reading.recipe, folder)))
    recipe = _with_absolute_paths(reading, run, folder)
    if recipe.model.weights == "files" and not recipe.model.path.exists():
        raise WeightsError(
            f"model.path: {recipe.model.path} does not exist; give a model's folder or file", code="E1401"
        )
    text = _text(recipe, [f"mezzotint train {shlex.join(arguments)}", f"in {folder}"])
    with queue.changing():
        entries = queue.entries()
        same = next((entry for entry in entries if entry.run == run), None)
        if same is not None:
            raise RecipeError(
                f"{same.name}, which is {same.state}, trains into {run}, too; choose another run.name, or remove that "
                f"entry: mezzotint queue remove {shlex.quote(same.name)}",
                code="E1961",
            )
        path = queue.write(_choose_name(run.name, {entry.name for entry in entries}), text)
    return queue.entry(path.stem)


def _with_absolute_paths(reading: Reading, run: Path, folder: Path) -> Recipe:
    """The recipe with its run folder, and with every path absolute."""
    recipe = locate_all_paths(reading)
    cache, resume = recipe.data.cache.path, recipe.run.resume
    values: dict[str, Any] = {"run.folder": run}
    if recipe.run.linked_folders:
        values["run.linked_folders"] = linked_folders(reading, recipe)
    if not is_remote(cache) and not str(cache).startswith("~"):
        values["data.cache.path"] = folder / cache
    if resume not in _RESUME and (folder / resume).exists():
        values["run.resume"] = str(folder / resume)
    return with_values(recipe, values)


def _text(recipe: Recipe, comments: Sequence[str]) -> str:
    """The recipe as YAML with the settings that were written; with all of them where that would not give the same
    recipe."""
    comment = "".join(f"# {escape_line(line)[:1000]}\n" for line in comments)
    for tree in (recipe.model_dump(mode="json", by_alias=True, exclude_unset=True), plain_values(recipe)):
        text = comment + as_yaml({"schema": 1, **tree}, {})
        if digest_of(read_text(text).recipe) == digest_of(recipe):
            break
    return text


def _choose_name(run: str, taken: set[str]) -> str:
    """A free name after a run folder's."""
    name = re.sub(r"[^\w.-]+", "-", run).strip("-.")[: LONGEST // 4] or "run"
    names = (name, *(f"{name}-{number}" for number in range(2, len(taken) + 3)))
    return next(one for one in names if one not in taken)
