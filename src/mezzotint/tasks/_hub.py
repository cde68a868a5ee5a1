"""A model by its hub id, `OWNER/NAME` or `OWNER/NAME@REVISION`, from the local cache of the Hugging Face hub. Nothing
is fetched: a run does what is asked with what is there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from mezzotint.errors import WeightsError
from mezzotint.recipe.read import MODELS, Reading, locate

_ID = re.compile(r"(?P<owner>[\w.-]+)/(?P<name>[\w.-]+?)(@(?P<revision>[\w./-]+))?")


def found(reading: Reading, *, insist: bool) -> Reading:
    """The reading with the folder of a hub id as its `model.path`; a path that exists stays, its revision left off.

    insist: raises WeightsError E1401 for an id that is neither a folder nor in the cache; otherwise it stays, too.
    """
    model = reading.recipe.model
    match = _ID.fullmatch(str(model.path))
    beside = reading.path.parent if reading.path else None
    if match is None or locate(model.path, beside, shipped=MODELS).exists():
        return reading
    name = f"{match['owner']}/{match['name']}"
    here = locate(Path(name), beside)
    folder = here if here.exists() else cached(name, match["revision"] or "main")
    if folder is None:
        if not insist:
            return reading
        said = f" at revision {match['revision']}" if match["revision"] else ""
        raise WeightsError(
            f"{name} is no folder here, and the local cache of the hub ({cache_root()}) does not have it{said}; "
            f"`hf download {name}` puts it there, or give a folder",
            code="E1401",
        )
    recipe = reading.recipe.model_copy(update={"model": model.model_copy(update={"path": folder})})
    return replace(reading, recipe=recipe, notes=(*reading.notes, f"{name} is {folder}"))


def cached(name: str, revision: str) -> Path | None:
    """The folder in which the cache keeps a revision (a branch, a tag, a commit) of a model, or None."""
    root = cache_root() / f"models--{name.replace('/', '--')}"
    reference = root / "refs" / revision
    commit = reference.read_text("utf-8").strip() if reference.is_file() else revision
    folder = root / "snapshots" / commit
    return folder if commit and folder.is_dir() else None


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """Where the hub's own programs keep what they have fetched."""
    given = os.environ if environ is None else environ
    if given.get("HF_HUB_CACHE"):
        return Path(given["HF_HUB_CACHE"]).expanduser()
    home = given.get("HF_HOME") or Path(given.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser() / "hub"
