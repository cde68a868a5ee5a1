"""Which entry an address has: the entries of a store's order on disk, and those that came later. In memory; a lookup
costs a binary search, and no Python object for each known entry.

Entries are numbered from 0, those of the order first, and keep their numbers while the table lives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.cache._order import ENTRY, Order, prefixes_of

UNKNOWN, GOOD, BAD = 0, 1, 2
"""States of an entry: not yet checked, as it was written, damaged."""

_MOST_RECENT = 65_536
"""So many new entries are looked up in a dict before all later ones are sorted."""

_MANY_KEYS = 1024
"""A lookup of more keys than this is worth sorting for."""


class EntryTable:
    """Entries by address. order: those on disk, which are sorted. state: (n,) of the states above, with room for
    more."""

    def __init__(self, order: Order) -> None:
        self.ordered = order.entries
        self.later = np.zeros(0, dtype=ENTRY)  # with room for more
        self.state = np.zeros(len(order), dtype=np.uint8)
        self._count = len(order)
        self._ordered_prefixes = order.prefixes()
        self._prefixes = np.zeros(0, dtype=np.uint64)  # of later entries, sorted, and their numbers
        self._numbers = np.zeros(0, dtype=np.int64)
        self._recent: dict[bytes, int] = {}  # the entries behind those
        self._num_sorted = self._num_indexed = self._count

    def __len__(self) -> int:
        return self._count

    def records(self, entries: NDArray[np.int64]) -> NDArray[Any]:
        """What is known of entries, (n,) of ENTRY, copied."""
        first = len(self.ordered)
        if not first:
            return self.later[entries]
        is_later = entries >= first
        records = np.empty(len(entries), dtype=ENTRY)
        records[is_later] = self.later[entries[is_later] - first]
        records[~is_later] = self.ordered[entries[~is_later]]
        return records

    def reserve(self, num: int) -> None:
        """Makes room for so many more entries."""
        count = self._count + num - len(self.ordered)
        room = count - len(self.later)
        if room > 0:
            self.later = np.concatenate([self.later, np.zeros(room, dtype=ENTRY)])
            state = np.zeros(len(self.ordered) + count, dtype=np.uint8)  # takes memory where something is written
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
        """Makes all entries known to lookups. num_keys: that are looked up next."""
        if self._count - self._num_sorted > (_MOST_RECENT if num_keys <= _MANY_KEYS else 0):
            self.sort()
        for entry in range(self._num_indexed, self._count):
            address = self.later["address"][entry - len(self.ordered)].tobytes()
            old = self._recent.get(address)
            if old is None or self.state[old] == BAD:
                self._recent[address] = entry
        self._num_indexed = self._count

    def find(self, keys: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The entry of each address (n, 32), −1 where there is none or it is known to be damaged."""
        self._index_new(len(keys))
        entries = np.full(len(keys), -1, dtype=np.int64)
        prefixes = prefixes_of(keys)
        by_prefix = np.argsort(prefixes)  # neighbours are found near each other
        self._search(keys, prefixes, by_prefix, self._ordered_prefixes, None, out=entries)
        self._search(keys, prefixes, by_prefix, self._prefixes, self._numbers, out=entries)
        if self._recent:
            for i in np.flatnonzero(entries < 0):
                entry = self._recent.get(keys[i].tobytes(), -1)
                entries[i] = entry if entry >= 0 and self.state[entry] != BAD else -1
        return entries

    def _search(
        self, keys: NDArray[np.uint8], prefixes: NDArray[np.uint64], by_prefix: NDArray[np.int64],
        known: NDArray[np.uint64], numbers: NDArray[np.int64] | None, *, out: NDArray[np.int64],
    ) -> None:  # fmt: skip
        """Fills in the entries of keys that have none yet. by_prefix: the places of the keys, ascending by prefix.
        known: prefixes of entries, ascending. numbers: the entry of each; None where they are counted from 0."""
        places = by_prefix[out[by_prefix] < 0]
        at = np.empty(len(keys), dtype=np.int64)
        at[places] = np.searchsorted(known, prefixes[places])
        places.sort()
        while len(places):
            places = places[at[places] < len(known)]
            places = places[known[at[places]] == prefixes[places]]
            entries = at[places] if numbers is None else numbers[at[places]]
            is_equal = (self.records(entries)["address"] == keys[places]).all(axis=1) & (self.state[entries] != BAD)
            out[places[is_equal]] = entries[is_equal]
            places = places[~is_equal]  # the same prefix, but another address, or damaged and made again
            at[places] += 1

    def mark_damaged(self, shard: int, rows: NDArray[np.int64]) -> None:
        """Counts rows of a shard as absent from now on."""
        first = len(self.ordered)
        for start, known in ((0, self.ordered), (first, self.later[: self._count - first])):
            of_shard = np.flatnonzero(known["shard"] == shard)
            self.state[start + of_shard[np.isin(known["row"][of_shard], rows)]] = BAD

    def in_order(self) -> NDArray[Any]:
        """All entries that are not damaged, sorted, (n,) of ENTRY."""
        later = prefixes_of(self.later["address"][: self._count - len(self.ordered)])
        entries = np.flatnonzero(self.state[: self._count] != BAD)
        prefixes = np.concatenate([self._ordered_prefixes, later])[entries]
        return self.records(entries[np.argsort(prefixes, kind="stable")])
