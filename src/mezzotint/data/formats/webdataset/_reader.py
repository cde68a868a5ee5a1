"""The format `webdataset`: pictures and captions in tar shards, grouped by key, read where they lie."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mezzotint.data.files import tar_members
from mezzotint.data.files.listing import Listing, Unusable, walk
from mezzotint.data.formats.base import Format, Noted, Skipped, Source
from mezzotint.data.formats.shared.table_samples import MAX_CAPTION_BYTES, captions_in
from mezzotint.data.formats.webdataset import _shards
from mezzotint.data.formats.webdataset._shards import Field, Group
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Sample

SUFFIXES = frozenset({".tar"})

_PICTURES = frozenset(ending.removeprefix(".") for ending in decoding.SUFFIXES)
_TEXTS = ("txt", "caption", "cls")
_USUAL = "text"
_MAX_JSON = 16 << 20
_SHOWN = 10


def list_files(path: Path, _settings: DataSettings) -> Listing:
    """The shards below a folder, or those that a path names: one, or many with braces. Raises DatasetError E1201,
    E1210 without a shard, E1281 for addresses of the network and braces that are none."""
    if re.match(r"[a-z0-9+]+:/|pipe:", str(path), re.IGNORECASE):
        raise DatasetError(f"{path}: shards are read from this machine's disks; fetch them first", code="E1281")
    if path.suffix == ".tar" or "{" in str(path):
        return _shards.listed(path)
    listing = walk(path, SUFFIXES)
    if not listing.names:
        packed = sum(count for ending, count in listing.unknown.items() if ending in (".gz", ".tgz", ".zst", ".xz"))
        hint = f"; {packed} compressed files lie there, which have to be unpacked to .tar" if packed else ""
        raise DatasetError(f"{listing.root}: no .tar file at any depth{hint}; put shards there", code="E1210")
    return listing


def read_samples(source: Source) -> Iterator[Sample | Skipped | Noted]:
    """One sample for each key of each shard that has a picture, in their order, or why there is none.

    A sample's key is `SHARD/PICTURE`. Its caption is the column `columns.caption` of its .json, or else its .txt,
    .caption or .cls. Raises DatasetError E1280 for a shard that cannot be read, E1203 after all were looked at when
    captions are missing and `captions.missing=error`, E1212 when no .json has a column that was asked for.
    """
    reading = _Reading(source)
    for path, reason in source.listing.refused:
        yield Skipped(source.prefix + path, reason)
    for name in source.listing.names:
        yield from reading.shard(name)
    reading.require()


class _Reading:
    """What is known of the shards read so far."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._column = source.settings.columns.caption
        self._has_column = False
        self._columns: set[str] = set()
        self._missing: list[str] = []
        self._num_missing = 0

    def shard(self, name: str) -> Iterator[Sample | Skipped | Noted]:
        path = self._source.root / name
        groups, others = _shards.grouped(path)
        if others:
            yield Noted(self._source.prefix + name, f"{others} members have no key and were not looked at")
        for key, group in groups.items():
            try:
                yield from self._of_group(path, name, group)
            except Unusable as error:
                yield Skipped(f"{self._source.prefix}{name}/{key}", str(error))

    def _of_group(self, path: Path, shard: str, group: Group) -> Iterator[Sample | Skipped]:
        pictures = [place for ending, place in group.fields.items() if ending in _PICTURES]
        prefix = f"{self._source.prefix}{shard}/"
        if group.fault:
            raise Unusable(group.fault)
        if not pictures:
            first = next(iter(group.fields.values()))
            yield Skipped(prefix + first.name, "no picture of its key", is_wanted=True)
            return
        if len(pictures) > 1:
            names = " and ".join(ascii(place.name) for place in pictures)
            raise Unusable(f"{names} are pictures of one key, and nobody can tell which is meant")
        [picture] = pictures
        captions = self._captions(path, group)
        match self._source.settings.captions.missing if captions is None else "":
            case "skip":
                yield Skipped(prefix + picture.name, "no caption", is_wanted=True)
            case "error":
                self._num_missing += 1
                self._missing += [prefix + picture.name] if len(self._missing) < _SHOWN else []
            case _:
                place = tar_members.path_of(path, picture.name, picture.offset, picture.size)
                yield Sample(prefix + picture.name, place, captions or ("",), repeats=self._source.repeats)

    def _captions(self, path: Path, group: Group) -> tuple[str, ...] | None:
        settings = self._source.settings.captions
        if "json" in group.fields:
            value = _object(path, group.fields["json"])
            self._columns.update(list(value)[:100] if len(self._columns) < 100 else ())
            if value.get(self._column) is not None:
                self._has_column = True
                return captions_in(value[self._column], settings)
        for ending in _TEXTS:
            if ending in group.fields:
                return captions_in(_text(path, group.fields[ending], MAX_CAPTION_BYTES), settings)
        return None

    def require(self) -> None:
        """Raises E1212 and E1203 for what the samples of all shards have in common."""
        root = self._source.root
        if self._columns and not self._has_column and self._column != _USUAL:
            shown = ", ".join(sorted(map(repr, self._columns))[:30])
            raise DatasetError(
                f"{root}: no .json has {self._column!r}; they have {shown}; set data.columns.caption", code="E1212"
            )
        if self._num_missing:
            more = f" and {self._num_missing - len(self._missing)} more" if self._num_missing > _SHOWN else ""
            raise DatasetError(
                f"{root}: no caption for {', '.join(self._missing)}{more}: a .txt of the same key, or a .json with "
                f"{self._column!r} (data.columns.caption); or set data.captions.missing=empty (or skip)",
                code="E1203",
            )


def _object(path: Path, place: Field) -> dict[str, Any]:
    try:
        value = json.loads(_text(path, place, _MAX_JSON))
    except (ValueError, RecursionError) as error:
        raise Unusable(f"{place.name!a}: not JSON: {getattr(error, 'msg', 'nested too deep')}") from error
    if not isinstance(value, dict):
        raise Unusable(f"{place.name!a}: no JSON object")
    return value


def _text(path: Path, place: Field, most: int) -> str:
    if place.size > most:
        raise Unusable(f"{place.name!a}: more than {most:,} bytes")
    try:
        return _shards.read(path, place).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unusable(f"{place.name!a}: not UTF-8 at byte {error.start}; save it as UTF-8") from error


FORMAT = Format(read_samples=read_samples, suffixes=SUFFIXES, list_files=list_files)
