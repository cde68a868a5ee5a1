"""Batch groups: a batch contains visits of one bucket and, if samples are grouped by name, of one name.

A named group keeps only full batches; its remaining visits join the nameless group of their bucket, so nothing is
repeated because of a name. Between the samples' columns and the batches of `plan.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws

_Ints = NDArray[np.int64]
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class BatchGroups:
    """Groups of samples that may share a batch. of_sample: (n,) int16 or int32, the group of each sample. cell, name:
    (g,) of each group: its bucket and batch size, as bucket + `num_buckets` · number in `batch_sizes`; 0 for no name.
    The nameless group of cell c is group c."""

    of_sample: NDArray[np.int16] | NDArray[np.int32]
    cell: _Ints
    name: _Ints
    num_buckets: int
    batch_sizes: tuple[int, ...]

    @property
    def is_named(self) -> bool:
        return bool(self.name.any())

    @property
    def bucket(self) -> _Ints:
        """The bucket of each group, (g,)."""
        return self.cell % max(self.num_buckets, 1)

    @property
    def batch_size(self) -> _Ints:
        """The batch size of each group, (g,)."""
        return np.asarray(self.batch_sizes, np.int64)[self.cell // max(self.num_buckets, 1)]

    def sizes(self, counts: _Ints) -> _Ints:
        """Visits of each group, given those of each sample, before `after_spill`. Exact below 2⁵³."""
        sizes = np.zeros(len(self.cell))
        for start in range(0, len(counts), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            sizes += np.bincount(self.of_sample[chunk], weights=counts[chunk], minlength=len(sizes))
        return sizes.astype(np.int64)

    def after_spill(self, sizes: _Ints) -> _Ints:
        """Visits of each group after those that fill no batch of their name have joined the nameless group."""
        moved = np.where(self.name > 0, sizes % self.batch_size, 0)
        remaining = sizes - moved
        np.add.at(remaining, self.cell, moved)
        return remaining


def batch_groups(
    bucket: NDArray[np.int16], name: NDArray[np.int32] | None, batch_sizes: tuple[int, ...],
    size_of: NDArray[np.int16] | None = None,
) -> BatchGroups:  # fmt: skip
    """The groups of samples. bucket: (n,). name: (n,), 0 for a sample without a name; None if no sample has one.
    size_of: (n,) index in `batch_sizes`; None if there is one."""
    num_buckets = int(bucket.max(initial=-1)) + 1
    num = num_buckets * len(batch_sizes)
    cell = bucket if size_of is None else (bucket + num_buckets * size_of.astype(np.int32))
    nameless = np.arange(num, dtype=np.int64)
    if name is None or not name.any():
        return BatchGroups(cell, nameless, np.zeros(num, np.int64), num_buckets, batch_sizes)
    named = name > 0
    pairs, number = np.unique(name[named].astype(np.int64) * num + cell[named], return_inverse=True)
    of_sample = cell.astype(np.int32)
    of_sample[named] = num + number
    names = np.concatenate((np.zeros(num, np.int64), pairs // num))
    return BatchGroups(of_sample, np.concatenate((nameless, pairs % num)), names, num_buckets, batch_sizes)


def arrange_batches(name: _Ints, accumulation: int, *, seed: int, epoch: int) -> _Ints:
    """The order of an epoch's batches, drawn by address. name: (m,) of each batch, 0 for none.

    If batches have names, windows of `accumulation` batches have one name as far as possible: a name's last batches are
    joined by nameless ones, then by batches of other names (`pack_lists`). Complete windows are shuffled; an
    incomplete one comes last.
    """
    drawn = draws.keys(seed, "batches", epoch, np.arange(len(name)))
    shuffled = np.argsort(drawn, kind="stable")
    if accumulation == 1 or not name.any():
        return shuffled
    _, number = np.unique(name[shuffled], return_inverse=True)
    by_name = np.argsort(number, kind="stable")
    batches, number = shuffled[by_name], number[by_name]
    sizes = np.bincount(number)
    rank = np.arange(len(batches)) - (np.cumsum(sizes) - sizes)[number]
    named = name[batches] > 0
    fills = named & (rank < sizes[number] // accumulation * accumulation)
    over = np.flatnonzero(named & ~fills)
    lists = [part.tolist() for part in np.split(batches[over], np.flatnonzero(np.diff(number[over])) + 1) if len(part)]
    lists.sort(key=lambda part: int(drawn[part[0]]))
    mixed = pack_lists(lists, batches[~named].tolist(), accumulation)
    order = np.concatenate((batches[fills], np.asarray(mixed, dtype=np.int64)))
    whole = len(order) // accumulation
    windows = order[: whole * accumulation].reshape(whole, accumulation)
    permutation = np.argsort(draws.keys(seed, "windows", epoch, np.arange(whole)), kind="stable")
    return np.concatenate((windows[permutation].ravel(), order[whole * accumulation :]))


def pack_lists(named: Sequence[Sequence[int]], nameless: Sequence[int], size: int) -> list[int]:
    """Joins lists such that windows of `size` entries mix few of them, by a simple rule.

    The longest list starts a window. If it is too short, nameless entries fill the window; if there are none left, the
    shortest list that fits completely, and if none fits, the first entries of the longest. Remaining nameless entries
    come last.
    """
    by_length: dict[int, list[Sequence[int]]] = {}
    for part in named:
        by_length.setdefault(len(part), []).append(part)
    joined: list[int] = []
    used = 0
    while by_length:
        room = size - _move(by_length, max(by_length), size, joined)
        fill = nameless[used : used + room]
        joined += fill
        used, room = used + len(fill), room - len(fill)
        while room and by_length:
            fitting = [length for length in by_length if length <= room]
            room -= _move(by_length, min(fitting) if fitting else max(by_length), room, joined)
    return [*joined, *nameless[used:]]


def _move(by_length: dict[int, list[Sequence[int]]], length: int, at_most: int, joined: list[int]) -> int:
    """Moves the first entries of a list of this length; the rest of it stays. Returns their number."""
    part = by_length[length].pop()
    if not by_length[length]:
        del by_length[length]
    joined += part[:at_most]
    if rest := part[at_most:]:
        by_length.setdefault(len(rest), []).append(rest)
    return min(length, at_most)
