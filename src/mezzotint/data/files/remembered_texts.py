"""Cache of the texts of caption files, next to the indexes of a data set: a file with the same size and times is not
read again."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws
from mezzotint.data.files import columns
from mezzotint.data.files.columns import DamagedColumns, TextBuilder, Texts

VERSION = 1


class RememberedTexts:
    """The texts of the last index, for the next one. folder: where they are stored; None to store nothing."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._texts = TextBuilder().texts()
        self._hashes, self._stats = np.zeros(0, np.uint64), np.zeros((0, 3), np.int64)
        try:
            table, about = columns.read(folder) if folder is not None else ({}, {})
            if about.get("version") == VERSION:
                self._hashes, self._stats, self._texts = table["hash"], table["stats"], Texts.in_table(table, "text")
        except (FileNotFoundError, DamagedColumns):
            pass  # every file is read
        self._order = np.argsort(self._hashes)
        self._lock, self._num_read = Lock(), 0
        self._seen, self._seen_hashes, self._seen_stats = TextBuilder(), array("Q"), array("q")

    def files(self, root: Path, names: Sequence[str], stats: NDArray[np.int64]) -> TextFiles:
        """The text files below a root. names: relative to the root. stats: (n, 3), as in `Listing`."""
        start = os.fspath(root) + os.sep
        hashes = np.fromiter((draws.text_key(start + name) for name in names), np.uint64, len(names))
        rows = np.full(len(names), -1, np.int64)
        if len(self._hashes):
            nearest = np.searchsorted(self._hashes, hashes, sorter=self._order)
            old_row = self._order[np.minimum(nearest, len(self._order) - 1)]
            is_same = (self._hashes[old_row] == hashes) & (self._stats[old_row] == stats).all(axis=1)
            rows[is_same] = old_row[is_same]
        return TextFiles(self, {name: number for number, name in enumerate(names)}, hashes, stats, rows)

    def get(self, row: int, key: int, stats: NDArray[np.int64], read: Callable[[], str]) -> str:
        """Returns a text and stores it for the next index. row: its stored row, or −1 to read it. Thread-safe."""
        text = self._texts[row] if row >= 0 else read()
        with self._lock:
            self._seen.append(text)
            self._seen_hashes.append(key)
            self._seen_stats.extend(stats.tolist())
            self._num_read += row < 0
        return text

    def write(self) -> None:
        """Stores only the texts that were used. Raises StorageError E1720."""
        assert self._folder is not None
        if not self._num_read and len(self._seen_hashes) == len(self._hashes):
            return
        table = {
            "hash": np.array(self._seen_hashes, np.uint64),
            "stats": np.array(self._seen_stats, np.int64).reshape(-1, 3),
            **self._seen.texts().columns("text"),
        }
        columns.write(self._folder, table, {"version": VERSION})


@dataclass(frozen=True, slots=True)
class TextFiles:
    """Text files below one folder. numbers: by name. hashes, stats, rows: of each; row −1 for a file that is not stored
    in its current state."""

    memory: RememberedTexts
    numbers: dict[str, int]
    hashes: NDArray[np.uint64]
    stats: NDArray[np.int64]
    rows: NDArray[np.int64]

    def text(self, name: str, read: Callable[[], str]) -> str:
        """The text of a file. read: called if it is not stored."""
        number = self.numbers[name]
        return self.memory.get(int(self.rows[number]), int(self.hashes[number]), self.stats[number], read)
