"""All entries of a store, sorted by address, as columns on disk: opening a store of any size maps them and reads only
what has been appended since.

The indexes of the shards remain authoritative. The order is next to them, in `order/`, records how much of each index
it covers, and is ignored if it is damaged or if an index is shorter than that.
"""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import durable
from mezzotint.data.cache.shard_files import Covered
from mezzotint.data.files import columns
from mezzotint.errors import StorageError

ENTRY = np.dtype([("address", "u1", (32,)), ("shard", "<u4"), ("row", "<u4"), ("checksum", "<u8")])
"""One entry, 48 bytes: address, location of the row, and the row's checksum."""

_VERSION = 2


@dataclass(frozen=True, slots=True)
class Order:
    """entries: (n,) of ENTRY, by the first 64 bits of their addresses, ascending; a memory map. shards: in the order of
    their numbers."""

    entries: NDArray[Any]
    shards: tuple[Covered, ...] = ()

    def __len__(self) -> int:
        return len(self.entries)

    def prefixes(self) -> NDArray[np.uint64]:
        """The first 64 bits of every address, without a copy."""
        words = self.entries.view("<u8").reshape(len(self.entries), ENTRY.itemsize // 8)
        prefixes: NDArray[np.uint64] = words[:, 0]
        return prefixes


NONE = Order(np.zeros(0, ENTRY))


def prefixes_of(addresses: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The first 64 bits of each address, (n, 32), by which entries are sorted."""
    return np.ascontiguousarray(addresses[:, :8]).view("<u8")[:, 0].astype(np.uint64, copy=False)


def folder_of(store: Path) -> Path:
    """The folder of a store's order."""
    return store.parent / "order" / store.name


def read(store: Path, row_bytes: int) -> Order:
    """Reads the order of a store's folder and checks every byte; an empty one if none matches the shards."""
    try:
        table, about = columns.read(folder_of(store))
        entries, shards = table["entries"], tuple(Covered(*shard) for shard in about["shards"])
        is_valid = about["version"] == _VERSION and entries.dtype == ENTRY and entries.ndim == 1
        is_valid = is_valid and bool((entries["shard"] < len(shards)).all())
        return Order(entries, shards) if is_valid and all(_exists(store, s, row_bytes) for s in shards) else NONE
    except (columns.DamagedColumns, OSError, ValueError, KeyError, TypeError):
        return NONE


def _exists(store: Path, shard: Covered, row_bytes: int) -> bool:
    index, rows = store / f"{shard.name}.index", store / f"{shard.name}.rows"
    return index.stat().st_size >= shard.index_bytes and rows.stat().st_size >= shard.rows * row_bytes


def write(store: Path, shards: Sequence[Covered], entries: NDArray[Any]) -> None:
    """Replaces the order, unless another process is doing so. entries: (n,) of ENTRY, sorted. Write errors are ignored:
    the order only saves time."""
    folder = folder_of(store)
    with suppress(OSError, StorageError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.with_name(f"{folder.name}.lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            durable.sweep(folder.parent)
            about = {"version": _VERSION, "shards": [astuple(shard) for shard in shards]}
            columns.write(folder, {"entries": entries}, about)
