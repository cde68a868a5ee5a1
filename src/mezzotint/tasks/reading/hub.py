"""A model by its hub id, `OWNER/NAME` or `OWNER/NAME@REVISION`, from the local cache of the Hugging Face hub. Nothing
is downloaded."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mezzotint import outside
from mezzotint.assets import MODELS
from mezzotint.errors import WeightsError
from mezzotint.settings import weights_formats
from mezzotint.settings.base import with_values
from mezzotint.settings.reading.read import Reading, resolve_path

_ID = re.compile(r"(?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(@(?P<revision>[\w./-]+))?")


def with_folders(reading: Reading, *, insist: bool) -> Reading:
    """The reading with the folders of hub ids as its `model.path`, `model.config` and `model.vae`; a path that exists
    stays, without its revision.

    insist: raise WeightsError E1401 for an id that is neither a folder nor in the cache; otherwise it stays, too.
    """
    base = reading.path.parent if reading.path else None
    model, notes = reading.recipe.model, list(reading.notes)
    folders: dict[str, Path] = {}
    for field, path in (("path", model.path), ("config", model.config), ("vae", model.vae)):
        folder = None if path is None else _folder_of(path, base, insist=insist, field=field)
        if folder is not None:
            folders[field] = folder
            notes.append(f"{str(path).partition('@')[0]} is {folder}")
    if not folders:
        return reading
    recipe = with_values(reading.recipe, {f"model.{field}": folder for field, folder in folders.items()})
    return replace(reading, recipe=recipe, notes=tuple(notes))


def _folder_of(path: Path, base_folder: Path | None, *, insist: bool, field: str) -> Path | None:
    """The folder of a hub id; None for other paths, for a path that exists as written, and for what is not in the
    cache. field: of `model`, for the message."""
    is_file_name = path.suffix.lower() in weights_formats.readable_suffixes()  # not an id, though it has a slash
    match = None if is_file_name else _ID.fullmatch(str(path))
    if match is None or resolve_path(path, base_folder, shipped=MODELS).exists():
        return None
    name = f"{match['owner']}/{match['name']}"
    local = resolve_path(Path(name), base_folder)
    folder = local if local.exists() else cached_folder(name, match["revision"] or "main")
    if folder is None and insist:
        revision = f" at revision {match['revision']}" if match["revision"] else ""
        extra = " --exclude '*.safetensors'" if field == "config" else ""
        raise WeightsError(
            f"model.{field}: {name} is not a local folder, and the local cache of the hub ({cache_root()}) lacks "
            f"it{revision}; "
            f"download it with `hf download {name}{extra}`, or give a folder",
            code="E1401",
        )
    return folder


def cached_folder(name: str, revision: str) -> Path | None:
    """The cache folder of a revision (a branch, a tag, a commit) of a model, or None."""
    root = cache_root() / f"models--{name.replace('/', '--')}"
    reference = root / "refs" / revision
    commit = outside.read_text(reference).strip() if reference.is_file() else revision
    folder = root / "snapshots" / commit
    return folder if commit and folder.is_dir() else None


def id_of(folder: Path) -> str | None:
    """The hub id `OWNER/NAME` of a folder in a cache of the hub, or of a file in it; None for other paths."""
    match = re.search(r"/models--([\w.-]+?)--([\w.-]+)/snapshots/", folder.as_posix())
    return f"{match[1]}/{match[2]}" if match else None


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """The cache folder of the hub's programs."""
    variables = os.environ if environ is None else environ
    if variables.get("HF_HUB_CACHE"):
        return Path(variables["HF_HUB_CACHE"]).expanduser()
    home = variables.get("HF_HOME") or Path(variables.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser() / "hub"
