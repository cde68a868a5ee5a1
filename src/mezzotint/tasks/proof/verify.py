"""`mezzotint verify RUN`: reads a run's inputs again, and names the first that has changed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mezzotint import draws, durable, outside
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.errors import CheckpointError, escape_line
from mezzotint.reports import data_report
from mezzotint.run_folder import RunFolder
from mezzotint.settings.reading.read import read, resolve_paths
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks import assemble
from mezzotint.tasks.proof import manifest
from mezzotint.tasks.reading import command_line
from mezzotint.training.checkpoints import state


def run(arguments: Sequence[str]) -> int:
    """`mezzotint verify RUN`. Returns 0 if nothing has changed.

    Raises CheckpointError: E1515 without a manifest, E1516 naming the first thing that differs; what reading the
    recipe, the model and the data raises.
    """
    folder = RunFolder(Path(command_line.parse(arguments, "verify").plain[0]).expanduser())
    for line in verify(folder):
        print(escape_line(line), flush=True)
    return 0


def verify(folder: RunFolder) -> Iterator[str]:
    """Checks the recipe, the checkpoints, the weights and the data, and yields a line for each that is unchanged.
    Raises as `run`."""
    recorded = manifest.read(folder.path)
    if durable.sha256(folder.recipe) != recorded["recipe"]:
        raise _difference_error(
            f"{folder.recipe}: has changed since the run wrote it", "restore it from a backup, or start the run again"
        )
    yield f"recipe       {folder.recipe}"
    checkpoints = state.list_checkpoints(folder.checkpoints)
    for path in checkpoints:
        reason = state.find_damage(path)
        if reason is not None:
            raise _difference_error(f"{path}: {reason}", "the run resumes from the one before")
    yield f"checkpoints  {len(checkpoints)} intact"
    recipe = resolve_paths(read(str(folder.recipe)))
    current = manifest.weights(recipe, assemble.open_files(recipe))
    for part, digest in recorded["weights"].items():
        if current.get(part) != digest:
            raise _difference_error(f"model.path: {part} is not the one that the run started from", "put it back")
    yield f"weights      {', '.join(recorded['weights'])}"
    with tempfile.TemporaryDirectory(prefix="mezzotint-verify-") as scratch:  # the run's disk may be read-only
        catalogue = catalogues.build(recipe.data, Path(scratch))  # decoded again, not read from the run's index
        _compare_data(recorded["data"], catalogue, folder)
        yield f"data         {len(catalogue)} samples"
    yield from _compare_machine(recorded["environment"], recipe)


def _compare_data(recorded: dict[str, Any], catalogue: Catalogue, folder: RunFolder) -> None:
    current = manifest.shards(catalogue) if len(catalogue) else {}
    if len(catalogue) == recorded["samples"] and current == recorded["shards"]:
        if catalogue.fingerprint != recorded["fingerprint"]:
            raise _difference_error(
                "data: settings of single samples, or images joined to clips, differ", "put them back"
            )
        return
    count = manifest.shard_count(recorded["samples"])
    of_same_count = current if manifest.shard_count(len(catalogue)) == count else {}
    before = {line["id"]: line["sha256"] for line in outside.read_lines(folder.path / data_report.FILE)
              if "sha256" in line and "set" not in line}  # fmt: skip
    after = {key: catalogue.digest[row].tobytes().hex() for row, key in enumerate(catalogue.keys())}
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            change = (
                "is new" if key not in before else "is gone, or no longer used" if key not in after else "has changed"
            )
            raise _difference_error(f"data: {key} {change}", "put it back")
    for key in sorted(after):
        shard = f"{int(manifest.shard_of(np.uint64(draws.text_key(key)), count)):03x}"
        if of_same_count.get(shard) != recorded["shards"].get(shard):
            raise _difference_error(
                f"data: captions, repeats or weight of {key}, or of one of its shard, differ", "put them back"
            )
    raise _difference_error("data: is a different data set", "put it back")


def _compare_machine(recorded: dict[str, Any], recipe: Recipe) -> Iterator[str]:
    from mezzotint.runtimes.base import Launch, open_runtime
    from mezzotint.tasks.train.run_files import environment

    launch = Launch()
    runtime = open_runtime(recipe.run, launch)
    current = environment(runtime, launch)
    runtime.close()
    changed = [
        f"{name}: {recorded[name]} → {current[name]}"
        for name in recorded
        if name in current and recorded[name] != current[name]
    ]
    yield f"machine      {'; '.join(changed) or 'unchanged'}" + (" (results may not be bit-exact)" if changed else "")


def _difference_error(problem: str, remedy: str) -> CheckpointError:
    return CheckpointError(f"{problem}; {remedy}", code="E1516")
