"""Folders that lie where a line of MindONE's looks for its cache, told by what is in them: ours, and MindONE's."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

DEFAULT = "./cache_data"
"""Where a cache lies when no flag says otherwise."""

FLAGS = "--cache_latent True --cache_text_embedding True"
_THEIRS = ("latent_cache", "vector_cache", "crossattn_cache")
_OURS = ("latents", "text")
_ROWS = 100


def is_theirs(name: str) -> bool:
    """Whether MindONE has cached into a folder."""
    return any((Path(name).expanduser() / one).is_dir() for one in _THEIRS)


def is_ours(name: str) -> bool:
    """Whether Mezzotint has cached into a folder."""
    return any(next((Path(name).expanduser() / one).glob("*/layout.json"), None) for one in _OURS)


def holds(cache: str, data: str) -> bool:
    """Whether a cache of MindONE's has latents of the pictures that the first rows of a data set's table name."""
    latents = Path(cache).expanduser() / _THEIRS[0]
    try:
        table = min(Path(data).expanduser().glob("*.csv"))
        with open(table, encoding="utf-8-sig", newline="") as file:
            rows = list(itertools.islice(csv.DictReader(file), _ROWS))
    except (OSError, ValueError, csv.Error):
        return False
    names = [Path(row.get("dir") or "").name.partition(".")[0] for row in rows]
    return bool(names) and all((latents / f"{name}.npy").is_file() for name in names)
