"""The tables of a data set of the format `metadata`: metadata files, or files that contain the images, of one split."""

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
"""Extensions of the files that this format uses."""

_SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "dev", "val"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
_SPLIT_WORD = re.compile(rf"(?:^|[-._ 0-9/])({'|'.join(_SPLITS)})(?=[-._ 0-9/]|$)")
_SHARD = re.compile(r"(?:^|/)data/(\w+(?:\.\w+)*)-[0-9]{5}-of-[0-9]{5}[^/]*$")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def list_files(path: Path, settings: DataSettings) -> Listing:
    """The images below a folder and the tables of the data set; or the arrow files of a hub data set.

    Tables are all metadata files of `data.split`; if there are none, all its .parquet and .arrow files. Other files
    count as unused. A path OWNER/NAME that is not a folder is a hub data set. Raises DatasetError E1201 for a folder
    that cannot be read, E1210 without tables or with two in one folder, E1214 to E1216.
    """
    if _HUB_NAME.fullmatch(os.fspath(path)) and not path.exists():
        return _of_hub(path, settings)
    listing = files_below(path, SUFFIXES)
    tables = [name for name in listing.names if is_table(name)]
    selected = [name for name in tables if is_manifest(name)]
    selected = selected or [name for name in tables if name.endswith((".parquet", ".arrow"))]
    if not selected:
        raise DatasetError(f"{listing.root}: {_no_tables_reason(listing, tables)}", code="E1210")
    require_one_each(listing.root, selected)
    of_split = {name for name in selected if split_of(name) == settings.split}
    if not of_split:
        splits = ", ".join(map(repr, sorted({split_of(name) for name in selected})))
        raise DatasetError(
            f"{listing.root}: no split {settings.split!r}; it has {splits}; set data.split", code="E1216"
        )
    return remove_files(listing, {name for name in tables if name not in of_split})


def split_of(name: str) -> str:
    """The split of a table by its path below the root, as in the library `datasets`: the word before `-00000-of-00001`
    in a folder `data`, otherwise a word such as `train`, `val` or `test` between separators, otherwise `train`."""
    shard = _SHARD.search(name)
    if shard:
        return _SPLITS.get(shard[1], shard[1])
    match = _SPLIT_WORD.search(name)
    return _SPLITS[match[1]] if match else "train"


def is_table(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in TABLES


def is_manifest(name: str) -> bool:
    """Whether a table refers to images in its folder, by its name."""
    return name.rpartition("/")[2] in MANIFESTS


def _of_hub(path: Path, settings: DataSettings) -> Listing:
    name = os.fspath(path)
    try:
        from mezzotint.data.formats.shared import _hub
    except ImportError as error:
        raise DatasetError(
            f"{name}: no such folder; for a data set of the hub, the package {error.name} is needed: "
            "pip install 'mezzotint[data]'",
            code="E1214",
        ) from error
    files = _hub.arrow_files(name, config=settings.hub_config, split=settings.split, cache=settings.hub_cache)
    listing = walk(files[0].parent, {".arrow"})
    return remove_files(listing, set(listing.names) - {file.name for file in files})


def remove_files(listing: Listing, dropped: Collection[str]) -> Listing:
    """A listing without some files, which are counted as unused."""
    unknown = Counter(listing.unknown)
    unknown.update(os.path.splitext(name)[1].lower() for name in dropped)
    indexes = [i for i, name in enumerate(listing.names) if name not in dropped]
    return replace(
        listing, names=[listing.names[i] for i in indexes], stats=listing.stats[indexes], unknown=dict(unknown)
    )  # fmt: skip


def require_one_each(root: Path, tables: list[str]) -> None:
    """Raises DatasetError E1210 for two metadata files in one folder."""
    folders = Counter(name.rpartition("/")[0] for name in tables if is_manifest(name))
    for folder, count in folders.items():
        if count > 1:
            names = ", ".join(name for name in tables if name.rpartition("/")[0] == folder)
            raise DatasetError(f"{root}: {names}: several metadata files; keep one of them", code="E1210")


def _no_tables_reason(listing: Listing, tables: list[str]) -> str:
    for name, reason in listing.refused:
        if is_manifest(name):
            return f"{name} is {reason}; replace it by the file itself"
    no_table = "no metadata.jsonl, metadata.csv or metadata.parquet, and no .parquet or .arrow files with images"
    if tables:
        return f"{no_table}; found {', '.join(tables[:5])}: name a table of file names metadata{Path(tables[0]).suffix}"
    return f"{no_table}; for captions next to the images set data.format=image-folder"
