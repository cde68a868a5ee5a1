"""The format `videofolder`: all clips below a folder, captions in metadata.jsonl or metadata.csv, as data sets of the
Hugging Face hub have them, or without such a table in sidecar files or file names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from mezzotint.data.files.listing import Listing, walk
from mezzotint.data.formats.base import Format, Item, Source
from mezzotint.data.formats.shared.sidecars import SIDECARS
from mezzotint.data.formats.shared.sidecars import samples as samples_beside
from mezzotint.data.formats.shared.table_files import remove_files, require_one_each
from mezzotint.data.formats.shared.table_samples import RowKind
from mezzotint.data.formats.shared.table_samples import samples as samples_of_tables
from mezzotint.data.media import clip_files
from mezzotint.settings.sections.data import DataSettings

MANIFESTS = frozenset({"metadata.jsonl", "metadata.csv"})
SUFFIXES = clip_files.SUFFIXES | set(SIDECARS) | {".jsonl", ".csv"}

CLIPS = RowKind(clip_files.SUFFIXES, "clip", "video")


def list_files(path: Path, settings: DataSettings) -> Listing:
    """The clips below a folder, and either its tables or its sidecars. Raises DatasetError E1201 for a folder that
    cannot be read, E1210 for two tables in one folder."""
    listing = walk(path, SUFFIXES)
    tables = [name for name in listing.names if _last(name) in MANIFESTS]
    require_one_each(listing.root, tables)
    dropped = SIDECARS if tables else ()
    return remove_files(
        listing,
        {
            name
            for name in listing.names
            if _suffix(name) in dropped or (_suffix(name) in (".jsonl", ".csv") and name not in tables)
        },
    )


def read_samples(source: Source) -> Iterator[Item]:
    """The samples of `table_samples.samples` if there is a table, otherwise those of `sidecars.samples`, for clips.
    Raises DatasetError E1290 if clips cannot be read on this machine."""
    clip_files.decoder()
    if any(_last(name) in MANIFESTS for name in source.listing.names):
        return samples_of_tables(source, CLIPS)
    return samples_beside(source, word="clip")


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


FORMAT = Format(
    read_samples=read_samples,
    suffixes=SUFFIXES,
    list_files=list_files,
    manifests=MANIFESTS,
    captions=("tables", "sidecars"),
)
