"""What a start writes into the run folder for its reader: the effective recipe, the machine, the data's report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from mezzotint import durable
from mezzotint.recipe.base import with_values
from mezzotint.recipe.recipe import Recipe
from mezzotint.reports import batch_report, data_report
from mezzotint.run_folder import RunFolder
from mezzotint.tasks import assemble, held_out
from mezzotint.tasks.long_captions import LostWords

SCHEMA_LINE = "# written by mezzotint; `mezzotint train` of this file goes on with the run beside it\n"


def write(
    recipe: Recipe,
    folder: RunFolder,
    dataset: assemble.Dataset,
    lost: LostWords | None,
    machine: Mapping[str, Any],
) -> None:
    """Writes environment.json, recipe.yaml, data_report.jsonl and the lists that the data call for. lost: captions that
    the text encoder cuts. machine: what environment.json says. Raises StorageError."""
    durable.write_json(folder.path / "environment.json", machine)
    # whatever this start was told, the next one goes on from the newest checkpoint
    again = with_values(recipe, {"run.resume": "auto"})
    text = yaml.safe_dump(assemble.effective(again), sort_keys=False, allow_unicode=True, width=100)
    durable.write_file(folder.recipe, SCHEMA_LINE + text)
    data_report.write(dataset.catalogue, folder.path, recipe.data, lost.tokens if lost is not None else {})
    held_out.write_list(folder, dataset)
    if recipe.data.buckets.shape == "table":
        batch_report.write_undersized(dataset.catalogue, dataset.rows, recipe.data, folder.path)


def link(folder: RunFolder, name: str, say: Callable[[str], None]) -> None:
    """Another name for the folder of exports. What lies there stays; a file system without links is told of."""
    place = folder.path / name
    if place.is_symlink() or place.exists():
        return
    try:
        place.symlink_to(folder.exports.name)
    except OSError as error:
        say(f"warning: {place} could not be made a link to {folder.exports.name}/ ({error.strerror}); models lie there")
