"""Which tables make a data set of the format `metadata`: metadata files, or files that hold the pictures, of one
split."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from mezzotint.data.files.listing import Listing, walk
from mezzotint.data.files.remote import files_below
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings

MANIFESTS = frozenset({"metadata.jsonl", "metadata.csv", "metadata.parquet"})
TABLES = frozenset({".jsonl", ".csv", ".parquet", ".arrow"})
SUFFIXES = decoding.SUFFIXES | TABLES
"""Endings of the files that this format looks at."""

_WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "dev", "val"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_WORD = re.compile(rf"(?:^|[-._ 0-9/])({'|'.join(_WORDS)})(?=[-._ 0-9/]|$)")
_SHARD = re.compile(r"(?:^|/)data/(\w+(?:\.\w+)*)-[0-9]{5}-of-[0-9]{5}[^/]*$")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def list_files(path: Path, settings: DataSettings) -> Listing:
    """The pictures below a folder and the tables that make the data set; or the arrow files of a hub data set.

    Tables are all metadata files of `data.split`; where there is none, all .parquet and .arrow files of it. The others
    are counted with the files that are not looked at. A path that is no folder and reads OWNER/NAME is a hub data set.
    Raises DatasetError E1201 for a folder that cannot be read, E1210 without tables or with two in one folder, E1214
    to E1216.
    """
    if _HUB_NAME.fullmatch(os.fspath(path)) and not path.exists():
        return _of_hub(path, settings)
    listing = files_below(path, SUFFIXES)
    tables = [name for name in listing.names if is_table(name)]
    chosen = [name for name in tables if is_manifest(name)]
    chosen = chosen or [name for name in tables if name.endswith((".parquet", ".arrow"))]
    if not chosen:
        raise DatasetError(f"{listing.root}: {_why_none(listing, tables)}", code="E1210")
    require_one_each(listing.root, chosen)
    kept = {name for name in chosen if split_of(name) == settings.split}
    if not kept:
        there = ", ".join(map(repr, sorted({split_of(name) for name in chosen})))
        raise DatasetError(f"{listing.root}: no part {settings.split!r}; it has {there}; set data.split", code="E1216")
    return without(listing, {name for name in tables if name not in kept})


def split_of(name: str) -> str:
    """The split that a table belongs to by its path below the root, as the library `datasets` has it: the word before
    `-00000-of-00001` in a folder `data`, else a word such as `train`, `val` or `test` between signs or slashes, else
    `train`."""
    shard = _SHARD.search(name)
    if shard:
        return _WORDS.get(shard[1], shard[1])
    word = _WORD.search(name)
    return _WORDS[word[1]] if word else "train"


def is_table(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in TABLES


def is_manifest(name: str) -> bool:
    """Whether a table names pictures of its folder, by what it is called."""
    return name.rpartition("/")[2] in MANIFESTS


def _of_hub(path: Path, settings: DataSettings) -> Listing:
    name = os.fspath(path)
    try:
        from mezzotint.data.formats.shared import _hub
    except ImportError as error:
        raise DatasetError(
            f"{name}: no such folder; if a data set of the hub is meant, the package {error.name} is needed: "
            "pip install 'mezzotint[data]'",
            code="E1214",
        ) from error
    files = _hub.arrow_files(name, config=settings.hub_config, split=settings.split, cache=settings.hub_cache)
    listing = walk(files[0].parent, {".arrow"})
    return without(listing, set(listing.names) - {file.name for file in files})


def without(listing: Listing, dropped: Collection[str]) -> Listing:
    """A listing without some files, which are counted as not looked at."""
    unknown = Counter(listing.unknown)
    unknown.update(os.path.splitext(name)[1].lower() for name in dropped)
    kept = [i for i, name in enumerate(listing.names) if name not in dropped]
    return replace(
        listing, names=[listing.names[i] for i in kept], stats=listing.stats[kept], unknown=dict(unknown)
    )  # fmt: skip


def require_one_each(root: Path, tables: list[str]) -> None:
    """Raises DatasetError E1210 when two metadata files lie in one folder."""
    folders = Counter(name.rpartition("/")[0] for name in tables if is_manifest(name))
    for folder, count in folders.items():
        if count > 1:
            names = ", ".join(name for name in tables if name.rpartition("/")[0] == folder)
            raise DatasetError(f"{root}: {names}: nobody can tell which is meant; keep one of them", code="E1210")


def _why_none(listing: Listing, tables: list[str]) -> str:
    for name, reason in listing.refused:
        if is_manifest(name):
            return f"{name} is {reason}; put the file itself there"
    no_table = "no metadata.jsonl, metadata.csv or metadata.parquet, and no .parquet or .arrow files with pictures"
    if tables:
        return f"{no_table}; found {', '.join(tables[:5])}: a table of names is called metadata{Path(tables[0]).suffix}"
    return f"{no_table}; for captions beside the pictures set data.format=image-folder"
