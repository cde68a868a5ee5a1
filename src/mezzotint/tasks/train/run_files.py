"""What a start writes into the run folder for the user: the effective recipe, the machine, the report about the
data."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import yaml

import mezzotint
from mezzotint import durable, outside, startup
from mezzotint.data.files.listing import is_remote
from mezzotint.data.findings.captions import LostWords
from mezzotint.errors import RecipeError
from mezzotint.reports import batch_report, data_report
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Launch, Runtime
from mezzotint.settings.base import with_values
from mezzotint.settings.reading.read import COMMAND_LINE, Reading
from mezzotint.settings.recipe import Recipe, plain_values
from mezzotint.tasks.assemble import Dataset
from mezzotint.tasks.proof import commit
from mezzotint.tasks.train import held_out

_WRITTEN = "# written by mezzotint"
FIRST_LINE = f"{_WRITTEN}; `mezzotint train` of this file resumes the run in this folder\n"
_PACKAGES = ("torch", "diffusers", "transformers", "safetensors", "numpy", "pillow")


def refuse_foreign_recipe(folder: RunFolder) -> None:
    """Raises RecipeError E1162 where a new run would overwrite a recipe that no run has written."""
    is_run = folder.history.exists() or any(folder.checkpoints.glob("step-*"))
    if is_run or not folder.recipe.is_file():
        return
    with outside.open_plain(folder.recipe) as file:
        is_ours = file.read(len(_WRITTEN)) == _WRITTEN.encode()
    if not is_ours:
        raise RecipeError(
            f"{folder.recipe}: exists, and no run has written it; choose another run.folder or run.name",
            code="E1162",
        )


def write(
    recipe: Recipe, folder: RunFolder, dataset: Dataset, lost: LostWords | None, runtime: Runtime, launch: Launch
) -> None:
    """Writes environment.json, recipe.yaml, data_report.jsonl and lists about the data. lost: captions that the text
    encoder truncates. Raises StorageError."""
    durable.write_json(folder.path / "environment.json", environment(runtime, launch))
    # the next start resumes from the newest checkpoint, with the same cache from any working directory
    cache = recipe.data.cache.path
    cache = cache if is_remote(cache) else cache.expanduser().absolute()
    resumed = with_values(recipe, {"run.resume": "auto", "data.cache.path": cache})
    text = yaml.safe_dump(plain_values(resumed), sort_keys=False, allow_unicode=True, width=100)
    durable.write_file(folder.recipe, FIRST_LINE + text)
    data_report.write(dataset.catalogue, folder.path, recipe.data, lost.tokens if lost is not None else {})
    held_out.write_list(folder, dataset)
    if recipe.data.buckets.shape == "table":
        batch_report.write_undersized(dataset.catalogue, dataset.rows, recipe.data, folder.path)


def write_origins(reading: Reading, folder: RunFolder) -> None:
    """Writes where each setting of recipe.yaml was given, into origin.json; settings not in it are defaults. A start
    from that recipe keeps the recorded origins and adds those of its command line. Raises StorageError."""
    origins: dict[str, str] = {}
    is_resumed = reading.path is not None and reading.path.resolve() == folder.recipe.resolve()
    if is_resumed:
        with suppress(OSError, ValueError):
            origins = dict(outside.read_json(folder.origin))
    for path, origin in reading.origin.items():
        if origin == COMMAND_LINE or not is_resumed:
            origins[path] = f"{origin} of {Path(reading.name).name}" if origin.startswith("line ") else origin
    durable.write_json(folder.origin, origins)


def link(folder: RunFolder, name: str, say: Callable[[str], None]) -> None:
    """Links another name to the folder of exports. An existing file stays; on a file system without links it prints a
    warning."""
    path = folder.path / name
    if path.is_symlink() or path.exists():
        return
    try:
        path.symlink_to(folder.exports.name)
    except OSError as error:
        say(f"warning: {path} could not be linked to {folder.exports.name}/ ({error.strerror}); models are there")


def environment(runtime: Runtime, launch: Launch) -> dict[str, Any]:
    """The machine and software of a run, as JSON: versions, commit, device, processes, threads; no names of people or
    paths."""
    facts: dict[str, Any] = {
        "mezzotint": mezzotint.__version__,
        "commit": commit.current_commit(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in _PACKAGES},
        "device": str(runtime.device),
        "processes": runtime.world_size,
        "launcher": launch.launcher,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "openmp": startup.openmp_settings(os.environ),
    }
    if runtime.device.type == "cuda":
        properties = torch.cuda.get_device_properties(runtime.device)
        facts["gpu"] = {"name": properties.name, "bytes": properties.total_memory, "cuda": torch.version.cuda}
    return facts


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
