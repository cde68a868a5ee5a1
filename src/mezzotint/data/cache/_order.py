"""What lies where in a store, in the order of addresses, mapped from disk: made by one process of what the shards'
indexes say, so that the others open a store of any size without reading or sorting it.

The indexes stay the truth. This lies beside them, in `order/`, says up to where it has read each of them, and is left
aside where one is shorter than that; who opens it reads what has come since. Every record has a check number; one that
does not fit counts as absent, and its entry is made again.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import durable, outside
from mezzotint.data.cache._shards import FACTORS, Covered

ENTRY = np.dtype([("address", "u1", (32,)), ("shard", "<u4"), ("row", "<u4"), ("checksum", "<u8"), ("check", "<u8")])
"""One record, 56 bytes: what the row is, where it lies, the row's checksum, whether this record is whole."""

_VERSION = 1
_AT_ONCE = 1 << 20


@dataclass(frozen=True, slots=True)
class Order:
    """entries: (n,) of ENTRY, by the first 64 bits of their addresses, ascending; a memory map. shards: the number of a
    shard is its place here."""

    entries: NDArray[Any]
    shards: tuple[Covered, ...] = ()

    def __len__(self) -> int:
        return len(self.entries)

    def prefixes(self) -> NDArray[np.uint64]:
        """The first 64 bits of every address, where they lie."""
        words = self.entries.view("<u8").reshape(len(self.entries), ENTRY.itemsize // 8)
        prefixes: NDArray[np.uint64] = words[:, 0]
        return prefixes


NONE = Order(np.zeros(0, ENTRY))


def place_of(store: Path) -> Path:
    """The folder of a store's order."""
    return store.parent / "order" / store.name


def opened(store: Path, row_bytes: int) -> Order:
    """The order of the store in a folder; an empty one where there is none, or none that fits the shards."""
    place = place_of(store)
    try:
        content = outside.read_json(place / "order.json")
        shards = tuple(Covered(str(name), int(size), int(rows)) for name, size, rows in content["shards"])
        count = int(content["entries"])
        if content["version"] != _VERSION or not all(_is_there(store, one, row_bytes) for one in shards):
            return NONE
        path = place / f"{content['file']}.entries"
        if not count or path.parent != place or path.stat().st_size != count * ENTRY.itemsize:
            return NONE
        mapped = np.asarray(np.memmap(path, dtype=ENTRY, mode="r", shape=(count,)))
    except (OSError, ValueError, KeyError, TypeError):
        return NONE
    return Order(mapped, shards)


def _is_there(store: Path, one: Covered, row_bytes: int) -> bool:
    index, rows = store / f"{one.name}.index", store / f"{one.name}.rows"
    return index.stat().st_size >= one.index_bytes and rows.stat().st_size >= one.rows * row_bytes


def write(
    store: Path, shards: Sequence[Covered], numbers: NDArray[np.int64],
    entries_of: Callable[[NDArray[np.int64]], NDArray[Any]],
) -> None:  # fmt: skip
    """Puts an order in the place of the one before, unless another process is at it. numbers: of entries, by the first
    64 bits of their addresses. entries_of: ENTRY of some numbers, without their check numbers. What cannot be written
    is left: it only saves time."""
    place = place_of(store)
    with suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        handle = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            name = secrets.token_hex(8)
            with (place / f"{name}.entries").open("wb") as file:
                for start in range(0, len(numbers), _AT_ONCE):
                    records = entries_of(numbers[start : start + _AT_ONCE])
                    records["check"] = checks(records)
                    file.write(records.tobytes())
                file.flush()
                os.fsync(file.fileno())
            listed = [[one.name, one.index_bytes, one.rows] for one in shards]
            content = {"version": _VERSION, "file": name, "entries": len(numbers), "shards": listed}
            durable.write_json(place / "order.json", content)
            for old in place.glob("*.entries"):
                if old.stem != name:
                    old.unlink()
        finally:
            os.close(handle)


def checks(entries: NDArray[Any]) -> NDArray[np.uint64]:
    """The check number of each record."""
    words = entries.view("<u8").reshape(len(entries), ENTRY.itemsize // 8)
    mixed = words[:, :6] ^ words[:, :6] >> np.uint64(32)
    return np.asarray(np.einsum("ij,j->i", mixed, FACTORS) ^ FACTORS[0], dtype=np.uint64)
