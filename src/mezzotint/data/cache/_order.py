"""All entries of a store, sorted by address, as columns on disk: who opens a store of any size maps them and reads
only what has been appended since.

The indexes of the shards stay the truth. The order is beside them, in `order/`, says up to where it has read each of
them, and is ignored if it is damaged or if one of them is shorter than that.
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
from mezzotint.data.cache._shards import Covered
from mezzotint.data.files import columns
from mezzotint.errors import StorageError

ENTRY = np.dtype([("address", "u1", (32,)), ("shard", "<u4"), ("row", "<u4"), ("checksum", "<u8")])
"""One entry, 48 bytes: what the row is, where it is, and the row's checksum."""

_VERSION = 2


@dataclass(frozen=True, slots=True)
class Order:
    """entries: (n,) of ENTRY, by the first 64 bits of their addresses, ascending; a memory map. shards: the number of a
    shard is its place here."""

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
    """Where the order of a store's folder is."""
    return store.parent / "order" / store.name


def read(store: Path, row_bytes: int) -> Order:
    """The order of the store in a folder, every byte checked; an empty one if there is none that fits the shards."""
    try:
        table, about = columns.read(folder_of(store))
        entries, shards = table["entries"], tuple(Covered(*shard) for shard in about["shards"])
        is_ours = about["version"] == _VERSION and entries.dtype == ENTRY and entries.ndim == 1
        is_ours = is_ours and bool((entries["shard"] < len(shards)).all())
        return Order(entries, shards) if is_ours and all(_is_there(store, one, row_bytes) for one in shards) else NONE
    except (columns.DamagedColumns, OSError, ValueError, KeyError, TypeError):
        return NONE


def _is_there(store: Path, one: Covered, row_bytes: int) -> bool:
    index, rows = store / f"{one.name}.index", store / f"{one.name}.rows"
    return index.stat().st_size >= one.index_bytes and rows.stat().st_size >= one.rows * row_bytes


def write(store: Path, shards: Sequence[Covered], entries: NDArray[Any]) -> None:
    """Replaces the order, unless another process does so now. entries: (n,) of ENTRY, sorted. What cannot be written is
    left: it only saves time."""
    folder = folder_of(store)
    with suppress(OSError, StorageError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with open(folder.with_name(f"{folder.name}.lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            durable.sweep(folder.parent)
            about = {"version": _VERSION, "shards": [astuple(one) for one in shards]}
            columns.write(folder, {"entries": entries}, about)
