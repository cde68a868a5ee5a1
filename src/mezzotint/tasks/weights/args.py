"""Arguments that `convert`, `merge` and the adapter commands share: paths and options."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from mezzotint import durable
from mezzotint.assets import MODELS
from mezzotint.errors import RecipeError, StorageError, WeightsError
from mezzotint.settings.reading.read import resolve_path
from mezzotint.tasks.reading import command_line
from mezzotint.tasks.reading.command_line import CommandLine
from mezzotint.tasks.reading.commands import REPLACE
from mezzotint.weights.files import formats, pickled
from mezzotint.weights.folder.components import DTypeName


@dataclass(frozen=True, slots=True)
class ConvertArgs:
    """dtype: None keeps every tensor's. ema: how to treat averaged copies in a single file. prediction, config: for
    files that do not contain them. store: the folder for a safetensors copy of a pickled source; None is the default
    folder. base, layout: for an adapter, its model and the layout to write. replaces: overwrite the destination. part:
    for a model with two denoisers, the one in the file that is read or written. task: as `model.task`."""

    source: Path
    destination: Path
    dtype: DTypeName | None = None
    ema: Literal["ignore", "use", "keep"] = "ignore"
    prediction: Literal["epsilon", "v"] | None = None
    config: Path | None = None
    store: Path | None = None
    base: Path | None = None
    layout: str | None = None
    replaces: bool = False
    part: str = ""
    task: Literal["auto", "text", "edit"] = "auto"


def parse(arguments: Sequence[str]) -> ConvertArgs:
    """Parses the arguments of `convert`. SOURCE is a path or the name of a shipped model. Raises RecipeError E1012."""
    line = command_line.parse(arguments, "convert")
    source = Path(line.plain[0]).expanduser()
    return ConvertArgs(
        source if source.exists() else resolve_path(source, None, shipped=MODELS),
        destination(line),
        dtype(line),
        cast('Literal["ignore", "use", "keep"]', line.get("--ema") or "ignore"),
        cast('Literal["epsilon", "v"] | None', line.get("--prediction")),
        config(line),
        base=line.get_path("--base"),
        layout=line.get("--layout"),
        replaces=REPLACE.name in line,
        part=line.get("--part") or "",
        task=cast('Literal["auto", "text", "edit"]', line.get("--task") or "auto"),
    )


def destination(line: CommandLine) -> Path:
    """The last argument, the path to write. Raises RecipeError E1012 for one that would be a pickle."""
    path = Path(line.plain[-1]).expanduser()
    if path.suffix in pickled.SUFFIXES and formats.format_for(path) is None:
        name = path.with_suffix(".safetensors").name
        raise line.usage_error(f"{path.name} would be a pickle, which is never written; use {name}")
    return path


def dtype(line: CommandLine) -> DTypeName | None:
    """The value of `--dtype`; None keeps every tensor's type."""
    return cast("DTypeName | None", line.get("--dtype"))


def config(line: CommandLine) -> Path | None:
    """The folder of configurations from `--config`, located."""
    path = line.get_path("--config")
    return None if path is None else resolve_path(path, None, shipped=MODELS)


def require_free(destination: Path, verb: str, *, replaces: bool = False) -> None:
    """Raises WeightsError E1410 if the destination exists, RecipeError E1012 if its parent folder does not. replaces:
    allow an existing file, link or model folder."""
    is_folder = destination.is_dir() and not destination.is_symlink()
    if replaces and is_folder and not (destination / "model_index.json").is_file():
        raise WeightsError(
            f"{destination}: is a folder that is not a model; --replace does not remove it", code="E1410"
        )
    if os.path.lexists(destination) and not replaces:
        raise WeightsError(
            f"{destination}: already exists; {verb} does not overwrite it; give another name, or add --replace",
            code="E1410",
        )
    if not destination.absolute().parent.is_dir():
        raise RecipeError(f"mezzotint {verb}: {destination.parent} is not a folder; create it first", code="E1012")


@contextmanager
def open_target(destination: Path, store: Path) -> Iterator[Path]:
    """The path to write to: the destination if it is free, or else a path in `store` that replaces it when the block
    succeeds."""
    if not os.path.lexists(destination):
        yield destination
        return
    temporary = store / "new" / destination.name
    temporary.parent.mkdir()
    yield temporary
    with durable.storage_errors(destination):
        durable.move_into_place(temporary, destination)


@contextmanager
def store_beside(destination: Path) -> Iterator[Path]:
    """A temporary folder next to the destination, for copies of pickled files. Raises StorageError E1701."""
    path = destination.absolute()
    with ExitStack() as stack:
        try:
            store = stack.enter_context(durable.temporary_folder(path))
        except OSError as error:
            raise StorageError(
                f"{path}: cannot be written ({error.strerror}); choose another destination", code="E1701"
            ) from error
        yield store
