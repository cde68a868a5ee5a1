"""Columns on disk: one folder of plain .npy arrays and a manifest, written whole or not at all, read by memory map.

Texts are one array of bytes and one of offsets, so that a million of them are no Python objects.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import zlib
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import durable, outside
from mezzotint.errors import StorageError

Columns = Mapping[str, NDArray[Any]]


class DamagedColumns(Exception):
    """Why a folder of columns cannot be trusted."""


_SHORT = 3
"""Bytes up to which a text is looked for in all places at once."""

_LOWER = np.frombuffer(bytes(range(256)).lower(), np.uint8)


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts by number. blob: their UTF-8 bytes one after the other (lone surrogates of file names as the bytes they
    stand for). offsets: (n+1,) int64."""

    blob: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    @classmethod
    def in_table(cls, table: Columns, name: str) -> Texts:
        return cls(table[name], table[f"{name}_offsets"])

    def columns(self, name: str) -> dict[str, NDArray[Any]]:
        """The two columns of these texts, `name` (bytes, uint8) and `name_offsets` (n + 1, int64)."""
        return {name: self.blob, f"{name}_offsets": self.offsets}

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        """All of them in order, faster than one by one."""
        data = self.blob.tobytes()
        for start, end in pairwise(self.offsets.tolist()):
            yield data[start:end].decode("utf-8", "surrogateescape")

    def __getitem__(self, number: int) -> str:
        start, end = int(self.offsets[number]), int(self.offsets[number + 1])
        return self.blob[start:end].tobytes().decode("utf-8", "surrogateescape")

    def containing(self, part: str) -> NDArray[np.int64]:
        """The numbers of the texts that have a part, ascending; letters a to z count as A to Z."""
        sought = part.encode("utf-8", "surrogateescape")
        if not sought:
            return np.arange(len(self))
        starts = self._anywhere(sought)
        numbers = np.searchsorted(self.offsets, starts, side="right") - 1
        has = np.zeros(len(self), bool)
        has[numbers[starts + len(sought) <= self.offsets[numbers + 1]]] = True  # not those over the border of two
        return np.flatnonzero(has)

    def _anywhere(self, sought: bytes) -> NDArray[np.int64]:
        """Where in the blob some bytes begin, ascending, overlapping ones among them or not."""
        if len(sought) > _SHORT:
            matches = re.finditer(re.escape(sought), self.blob.tobytes(), re.IGNORECASE)
            return np.fromiter((match.start() for match in matches), np.int64)
        blob, is_there = _LOWER[self.blob], np.ones(len(self.blob), bool)  # of a letter there are millions
        for place, byte in enumerate(sought.lower()):
            is_there[: len(blob) - place] &= blob[place:] == byte
            is_there[max(0, len(blob) - place) :] = False
        return np.flatnonzero(is_there)

    def beginning_with(self, part: str) -> NDArray[np.int64]:
        """The numbers of the texts that begin with a part, ascending."""
        sought = np.frombuffer(part.encode("utf-8", "surrogateescape"), np.uint8)
        numbers = np.flatnonzero(np.diff(self.offsets) >= len(sought))
        for place, byte in enumerate(sought):
            numbers = numbers[self.blob[self.offsets[numbers] + place] == byte]
        return numbers


class TextBuilder:
    """Gathers texts without keeping an object for each."""

    def __init__(self) -> None:
        self._blob = bytearray()
        self._offsets = array("q", [0])

    def append(self, text: str) -> None:
        self._blob += text.encode("utf-8", "surrogateescape")
        self._offsets.append(len(self._blob))

    def texts(self) -> Texts:
        """What was gathered; nothing can be appended while it is in use."""
        return Texts(np.frombuffer(self._blob, dtype=np.uint8), np.frombuffer(self._offsets, dtype=np.int64))


@contextmanager
def written(place: Path) -> Iterator[None]:
    """Turns what goes wrong in writing an index into StorageError E1720, which names place, reason and remedy."""
    try:
        yield
    except OSError as error:
        full = error.errno in durable.FULL
        room = f" ({durable.free_bytes(place.parent):,} bytes are free); make room there, or" if full else ";"
        raise StorageError(
            f"{place}: what is known of each picture cannot be written there: {error.strerror or error}{room} "
            "set data.cache.path to another folder",
            code="E1720",
        ) from error


def write(folder: Path, columns: Columns, about: Mapping[str, Any]) -> None:
    """Writes columns and what is said about them (JSON values) under a name that appears only when all is on disk.
    A folder already there under this name is replaced. Raises StorageError E1720."""
    with written(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with written(folder), durable.swapped_in(folder) as aside:
        aside.mkdir()
        files = {name: _write_column(aside / f"{name}.npy", column) for name, column in columns.items()}
        body = {"about": dict(about), "files": files}
        (aside / "manifest.json").write_text(json.dumps({**body, "seal": _seal(body)}), "ascii")


def read(folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The columns as read-only memory maps, and what is said about them. Every byte is checked. Raises DamagedColumns,
    or FileNotFoundError when there is no such folder."""
    try:
        text = outside.read_text(folder / "manifest.json", limit=outside.LISTED)
    except NotADirectoryError as error:
        raise FileNotFoundError(folder) from error
    except (outside.NoPlainFile, UnicodeDecodeError) as error:
        raise DamagedColumns(f"{folder}: {error}") from error
    try:
        manifest = outside.parse_json(text)
        seal = manifest.pop("seal")
        if seal != _seal(manifest):
            raise DamagedColumns(f"{folder / 'manifest.json'} was changed")
        columns = {name: _read_column(folder / f"{name}.npy", marks) for name, marks in manifest["files"].items()}
        return columns, manifest["about"]
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise DamagedColumns(f"{folder}: {error}") from error


def _seal(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode("ascii")).hexdigest()


def _write_column(path: Path, column: NDArray[Any]) -> dict[str, int]:
    np.save(path, np.ascontiguousarray(column), allow_pickle=False)
    return _marks(path)


def _read_column(path: Path, marks: dict[str, int]) -> NDArray[Any]:
    if _marks(path) != marks:
        raise DamagedColumns(f"{path} was changed")
    # an empty array has no bytes to map
    mapped = np.load(path, mmap_mode=None if marks["bytes"] <= 256 else "r", allow_pickle=False)
    column: NDArray[Any] = np.asarray(mapped)  # as a plain array: one number of a np.memmap takes five times longer
    column.flags.writeable = False
    return column


def _marks(path: Path) -> dict[str, int]:
    with outside.open_plain(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return {"bytes": len(content), "crc32": zlib.crc32(content)}


def pick(texts: Texts, numbers: NDArray[np.int64]) -> Texts:
    """Some of the texts, in the order of `numbers`."""
    if len(numbers) == len(texts) and (numbers == np.arange(len(texts))).all():
        return texts
    builder = TextBuilder()
    for number in numbers.tolist():
        builder.append(texts[number])
    return builder.texts()
