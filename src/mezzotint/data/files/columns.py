"""Columns on disk: a folder of .npy arrays and a manifest, written atomically, read by memory map.

Texts are one array of bytes and one of offsets, without a Python object for each.
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
    """Raised for a folder of columns that is not valid."""


SHORT_TEXT = 3
"""Maximum length of a search text for which all positions are compared at once."""

_LOWER = np.frombuffer(bytes(range(256)).lower(), np.uint8)


@dataclass(frozen=True, slots=True)
class Texts:
    """Texts by number. blob: their concatenated UTF-8 bytes (lone surrogates of file names as the original bytes).
    offsets: (n+1,) int64."""

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
        """Yields all texts in order, faster than by index."""
        data = self.blob.tobytes()
        for start, end in pairwise(self.offsets.tolist()):
            yield data[start:end].decode("utf-8", "surrogateescape")

    def __getitem__(self, number: int) -> str:
        start, end = int(self.offsets[number]), int(self.offsets[number + 1])
        return self.blob[start:end].tobytes().decode("utf-8", "surrogateescape")

    def containing(self, part: str) -> NDArray[np.int64]:
        """The numbers of the texts that contain `part`, ascending; ignores the case of a to z."""
        sought = part.encode("utf-8", "surrogateescape")
        if not sought:
            return np.arange(len(self))
        starts = self._find(sought)
        numbers = np.searchsorted(self.offsets, starts, side="right") - 1
        has = np.zeros(len(self), bool)
        has[numbers[starts + len(sought) <= self.offsets[numbers + 1]]] = True  # without matches across two texts
        return np.flatnonzero(has)

    def _find(self, sought: bytes) -> NDArray[np.int64]:
        """The positions of some bytes in the blob, ascending; overlapping ones may be missing."""
        if len(sought) > SHORT_TEXT:
            matches = re.finditer(re.escape(sought), self.blob.tobytes(), re.IGNORECASE)
            return np.fromiter((match.start() for match in matches), np.int64)
        blob, is_match = _LOWER[self.blob], np.ones(len(self.blob), bool)  # short texts have millions of matches
        for i, byte in enumerate(sought.lower()):
            is_match[: len(blob) - i] &= blob[i:] == byte
            is_match[max(0, len(blob) - i) :] = False
        return np.flatnonzero(is_match)

    def beginning_with(self, part: str) -> NDArray[np.int64]:
        """The numbers of the texts that start with `part`, ascending."""
        sought = np.frombuffer(part.encode("utf-8", "surrogateescape"), np.uint8)
        numbers = np.flatnonzero(np.diff(self.offsets) >= len(sought))
        for i, byte in enumerate(sought):
            numbers = numbers[self.blob[self.offsets[numbers] + i] == byte]
        return numbers


class TextBuilder:
    """Collects texts without keeping an object for each."""

    def __init__(self) -> None:
        self._blob = bytearray()
        self._offsets = array("q", [0])

    def append(self, text: str) -> None:
        self._blob += text.encode("utf-8", "surrogateescape")
        self._offsets.append(len(self._blob))

    def texts(self) -> Texts:
        """The collected texts; nothing can be appended while they are in use."""
        return Texts(np.frombuffer(self._blob, dtype=np.uint8), np.frombuffer(self._offsets, dtype=np.int64))


@contextmanager
def convert_write_errors(path: Path) -> Iterator[None]:
    """Context manager: converts OSError while writing an index to StorageError E1720 with path, reason and remedy."""
    try:
        yield
    except OSError as error:
        full = error.errno in durable.FULL
        remedy = f" ({durable.free_bytes(path.parent):,} bytes are free); free space there, or" if full else ";"
        raise StorageError(
            f"{path}: the data index cannot be written: {error.strerror or error}{remedy} "
            "set data.cache.path to another folder",
            code="E1720",
        ) from error


def write(folder: Path, columns: Columns, about: Mapping[str, Any]) -> None:
    """Writes columns and metadata (JSON values) to a folder that appears only when everything is on disk. An existing
    folder with this name is replaced. Raises StorageError E1720."""
    with convert_write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with convert_write_errors(folder), durable.replace_atomically(folder) as temporary:
        temporary.mkdir()
        files = {name: _write_column(temporary / f"{name}.npy", column) for name, column in columns.items()}
        body = {"about": dict(about), "files": files}
        (temporary / "manifest.json").write_text(json.dumps({**body, "seal": _seal(body)}), "ascii")


def read(folder: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Reads the columns as read-only memory maps, and the metadata. Checks every byte. Raises DamagedColumns, or
    FileNotFoundError if there is no such folder."""
    try:
        text = outside.read_text(folder / "manifest.json", limit=outside.LISTED)
    except NotADirectoryError as error:
        raise FileNotFoundError(folder) from error
    except (outside.NotRegularFile, UnicodeDecodeError) as error:
        raise DamagedColumns(f"{folder}: {error}") from error
    try:
        manifest = outside.parse_json(text)
        seal = manifest.pop("seal")
        if seal != _seal(manifest):
            raise DamagedColumns(f"{folder / 'manifest.json'} was changed")
        columns = {name: _read_column(folder / f"{name}.npy", checksum) for name, checksum in manifest["files"].items()}
        return columns, manifest["about"]
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise DamagedColumns(f"{folder}: {error}") from error


def _seal(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode("ascii")).hexdigest()


def _write_column(path: Path, column: NDArray[Any]) -> dict[str, int]:
    np.save(path, np.ascontiguousarray(column), allow_pickle=False)
    return _checksum(path)


def _read_column(path: Path, checksum: dict[str, int]) -> NDArray[Any]:
    if _checksum(path) != checksum:
        raise DamagedColumns(f"{path} was changed")
    # an empty array has no bytes to map
    mapped = np.load(path, mmap_mode=None if checksum["bytes"] <= 256 else "r", allow_pickle=False)
    column: NDArray[Any] = np.asarray(mapped)  # a plain array: indexing a np.memmap is five times slower
    column.flags.writeable = False
    return column


def _checksum(path: Path) -> dict[str, int]:
    with outside.open_plain(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return {"bytes": len(content), "crc32": zlib.crc32(content)}


def select_texts(texts: Texts, numbers: NDArray[np.int64]) -> Texts:
    """Selects texts, in the order of `numbers`."""
    if len(numbers) == len(texts) and (numbers == np.arange(len(texts))).all():
        return texts
    builder = TextBuilder()
    for number in numbers.tolist():
        builder.append(texts[number])
    return builder.texts()
