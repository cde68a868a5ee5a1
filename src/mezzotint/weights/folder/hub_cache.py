"""The local cache of the Hugging Face hub: the folders of models that its programs have downloaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from mezzotint import outside


def cached_folder(name: str, revision: str) -> Path | None:
    """The cache folder of a revision (a branch, a tag, a commit) of a model, or None."""
    root = cache_root() / f"models--{name.replace('/', '--')}"
    reference = root / "refs" / revision
    commit = outside.read_text(reference).strip() if reference.is_file() else revision
    folder = root / "snapshots" / commit
    return folder if commit and folder.is_dir() else None


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """The cache folder of the hub's programs."""
    variables = os.environ if environ is None else environ
    if variables.get("HF_HUB_CACHE"):
        return Path(variables["HF_HUB_CACHE"]).expanduser()
    home = variables.get("HF_HOME") or Path(variables.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser() / "hub"
