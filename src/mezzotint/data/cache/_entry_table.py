"""Maps addresses to entries: those of a store's order on disk, and those added later. In memory; a lookup is a binary
search, without a Python object for each entry.

Entries are numbered from 0, those of the order first, and keep their numbers during the lifetime of the table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.cache._order import ENTRY, Order, prefixes_of

UNKNOWN, GOOD, BAD = 0, 1, 2
"""States of an entry: not yet checked, intact, damaged."""

_MAX_RECENT = 65_536
"""Maximum number of new entries in a dict before all later ones are sorted."""

_MANY_KEYS = 1024
"""A lookup of more keys than this sorts the later entries first."""


class EntryTable:
    """Entries by address. order: those on disk, sorted. state: (n,) of the states above, with spare capacity."""

    def __init__(self, order: Order) -> None:
        self.ordered = order.entries
        self.later = np.zeros(0, dtype=ENTRY)  # with spare capacity
        self.state = np.zeros(len(order), dtype=np.uint8)
        self._count = len(order)
        self._ordered_prefixes = order.prefixes()
        self._prefixes = np.zeros(0, dtype=np.uint64)  # of later entries, sorted, and their numbers
        self._numbers = np.zeros(0, dtype=np.int64)
        self._recent: dict[bytes, int] = {}  # the entries after those
        self._num_sorted = self._num_indexed = self._count

    def __len__(self) -> int:
        return self._count

    def records(self, entries: NDArray[np.int64]) -> NDArray[Any]:
        """The records of entries, (n,) of ENTRY, copied."""
        first = len(self.ordered)
        if not first:
            return self.later[entries]
        is_later = entries >= first
        records = np.empty(len(entries), dtype=ENTRY)
        records[is_later] = self.later[entries[is_later] - first]
        records[~is_later] = self.ordered[entries[~is_later]]
        return records

    def reserve(self, num: int) -> None:
        """Allocates room for `num` more entries."""
        count = self._count + num - len(self.ordered)
        room = count - len(self.later)
        if room > 0:
            self.later = np.concatenate([self.later, np.zeros(room, dtype=ENTRY)])
            state = np.zeros(len(self.ordered) + count, dtype=np.uint8)  # pages use memory only when they are written
            checked = np.flatnonzero(self.state)
            state[checked] = self.state[checked]
            self.state = state

    def add(self, shard: int, addresses: NDArray[np.uint8], rows: NDArray[Any], checksums: NDArray[np.uint64]) -> None:
        """Adds entries (n,) of a shard."""
        start = self._count - len(self.ordered)
        end = start + len(rows)
        if end > len(self.later):
            self.reserve(max(len(rows), len(self.later), 1024))
        new = self.later[start:end]
        new["address"], new["shard"], new["row"], new["checksum"] = addresses, shard, rows, checksums
        self._count += len(rows)

    def sort(self) -> None:
        """Sorts all later entries by address, for lookups of many keys."""
        if self._num_sorted != self._count:
            prefixes = prefixes_of(self.later["address"][: self._count - len(self.ordered)])
            order = np.argsort(prefixes)
            self._prefixes, self._numbers = prefixes[order], order + len(self.ordered)
            self._num_sorted = self._num_indexed = self._count
            self._recent.clear()

    def _index_new(self, num_keys: int) -> None:
        """Makes all entries visible to lookups. num_keys: number of keys of the next lookup."""
        if self._count - self._num_sorted > (_MAX_RECENT if num_keys <= _MANY_KEYS else 0):
            self.sort()
        for entry in range(self._num_indexed, self._count):
            address = self.later["address"][entry - len(self.ordered)].tobytes()
            old = self._recent.get(address)
            if old is None or self.state[old] == BAD:
                self._recent[address] = entry
        self._num_indexed = self._count

    def find(self, keys: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The entry of each address (n, 32), −1 if there is none or it is known to be damaged."""
        self._index_new(len(keys))
        entries = np.full(len(keys), -1, dtype=np.int64)
        prefixes = prefixes_of(keys)
        by_prefix = np.argsort(prefixes)  # in sorted order memory access is local
        self._search(keys, prefixes, by_prefix, self._ordered_prefixes, None, out=entries)
        self._search(keys, prefixes, by_prefix, self._prefixes, self._numbers, out=entries)
        if self._recent:
            for i in np.flatnonzero(entries < 0):
                entry = self._recent.get(keys[i].tobytes(), -1)
                entries[i] = entry if entry >= 0 and self.state[entry] != BAD else -1
        return entries

    def _search(
        self, keys: NDArray[np.uint8], prefixes: NDArray[np.uint64], by_prefix: NDArray[np.int64],
        table: NDArray[np.uint64], numbers: NDArray[np.int64] | None, *, out: NDArray[np.int64],
    ) -> None:  # fmt: skip
        """Fills in the entries of keys that have none yet. by_prefix: the indexes of the keys, ascending by prefix.
        table: prefixes of entries, ascending. numbers: the entry of each; None if they are counted from 0."""
        missing = by_prefix[out[by_prefix] < 0]
        at = np.empty(len(keys), dtype=np.int64)
        at[missing] = np.searchsorted(table, prefixes[missing])
        missing.sort()
        while len(missing):
            missing = missing[at[missing] < len(table)]
            missing = missing[table[at[missing]] == prefixes[missing]]
            entries = at[missing] if numbers is None else numbers[at[missing]]
            is_equal = (self.records(entries)["address"] == keys[missing]).all(axis=1) & (self.state[entries] != BAD)
            out[missing[is_equal]] = entries[is_equal]
            missing = missing[~is_equal]  # the same prefix, but another address, or damaged and written again
            at[missing] += 1

    def mark_damaged(self, shard: int, rows: NDArray[np.int64]) -> None:
        """Treats rows of a shard as missing from now on."""
        first = len(self.ordered)
        for start, records in ((0, self.ordered), (first, self.later[: self._count - first])):
            of_shard = np.flatnonzero(records["shard"] == shard)
            self.state[start + of_shard[np.isin(records["row"][of_shard], rows)]] = BAD

    def sorted_entries(self) -> NDArray[Any]:
        """All entries that are not damaged, sorted, (n,) of ENTRY."""
        later = prefixes_of(self.later["address"][: self._count - len(self.ordered)])
        entries = np.flatnonzero(self.state[: self._count] != BAD)
        prefixes = np.concatenate([self._ordered_prefixes, later])[entries]
        return self.records(entries[np.argsort(prefixes, kind="stable")])
