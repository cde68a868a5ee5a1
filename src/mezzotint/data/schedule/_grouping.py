"""Cells: what a batch is made of, the visits of one bucket and, where samples are grouped by name, of one name.

A named cell keeps only full batches; what is left of it joins the nameless cell of its bucket, so that nothing is
repeated for a name's sake. Between the samples' columns and the batches of `plan.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws

_Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Cells:
    """of_sample: (n,) int32, the cell of each sample. bucket, group: (c,) of each cell; group 0 is nameless. The
    nameless cell of bucket b is cell b."""

    of_sample: NDArray[np.int32]
    bucket: _Ints
    group: _Ints

    @property
    def is_named(self) -> bool:
        """Whether any sample has a name."""
        return bool(self.group.any())

    def sizes(self, counts: _Ints) -> _Ints:
        """Visits of each cell, given those of each sample, before anything moves. Exact below 2⁵³."""
        return np.bincount(self.of_sample, weights=counts, minlength=len(self.bucket)).astype(np.int64)

    def settled(self, sizes: _Ints, batch_size: int) -> _Ints:
        """Visits of each cell after what fills no batch of its name has moved."""
        moved = np.where(self.group > 0, sizes % batch_size, 0)
        here = sizes - moved
        np.add.at(here, self.bucket, moved)
        return here


def cells_of(bucket: NDArray[np.int16], group: NDArray[np.int32] | None) -> Cells:
    """The cells of samples. bucket: (n,). group: (n,), 0 for a sample without a name; None when no sample has one."""
    num = int(bucket.max(initial=-1)) + 1
    nameless = np.arange(num, dtype=np.int64)
    if group is None or not group.any():
        return Cells(bucket.astype(np.int32), nameless, np.zeros(num, np.int64))
    named = group > 0
    pairs, number = np.unique(group[named].astype(np.int64) * num + bucket[named], return_inverse=True)
    of_sample = bucket.astype(np.int32)
    of_sample[named] = num + number
    groups = np.concatenate((np.zeros(num, np.int64), pairs // num))
    return Cells(of_sample, np.concatenate((nameless, pairs % num)), groups)


def arranged(group: _Ints, accumulation: int, *, seed: int, epoch: int) -> _Ints:
    """The order of an epoch's batches, drawn by address. group: (m,) of each batch, 0 nameless.

    Where batches have names, windows of `accumulation` batches keep to one name as far as there are enough of it: a
    name's last batches are joined by nameless ones, then by the batches of other names (`packed`). Complete windows are
    shuffled; an incomplete one comes last.
    """
    drawn = draws.keys(seed, "batches", epoch, np.arange(len(group)))
    shuffled = np.argsort(drawn, kind="stable")
    if accumulation == 1 or not group.any():
        return shuffled
    _, number = np.unique(group[shuffled], return_inverse=True)
    sorted_by_group = np.argsort(number, kind="stable")
    batches, number = shuffled[sorted_by_group], number[sorted_by_group]
    sizes = np.bincount(number)
    rank = np.arange(len(batches)) - (np.cumsum(sizes) - sizes)[number]
    named = group[batches] > 0
    fills = named & (rank < sizes[number] // accumulation * accumulation)
    over = np.flatnonzero(named & ~fills)
    lists = [part.tolist() for part in np.split(batches[over], np.flatnonzero(np.diff(number[over])) + 1) if len(part)]
    lists.sort(key=lambda part: int(drawn[part[0]]))
    mixed = packed(lists, batches[~named].tolist(), accumulation)
    order = np.concatenate((batches[fills], np.asarray(mixed, dtype=np.int64)))
    whole = len(order) // accumulation
    windows = order[: whole * accumulation].reshape(whole, accumulation)
    places = np.argsort(draws.keys(seed, "windows", epoch, np.arange(whole)), kind="stable")
    return np.concatenate((windows[places].ravel(), order[whole * accumulation :]))


def packed(named: Sequence[Sequence[int]], nameless: Sequence[int], size: int) -> list[int]:
    """Lists joined so that windows of `size` entries mix as few of them as a simple rule can do.

    The longest list begins a window. If it is too short, nameless entries fill it up; when there are none left, the
    shortest list that fits whole, and when none does, the first entries of the longest. Nameless entries that are left
    come last.
    """
    by_length: dict[int, list[Sequence[int]]] = {}
    for part in named:
        by_length.setdefault(len(part), []).append(part)
    joined: list[int] = []
    used = 0
    while by_length:
        room = size - _move(by_length, max(by_length), size, joined)
        some = nameless[used : used + room]
        joined += some
        used, room = used + len(some), room - len(some)
        while room and by_length:
            fitting = [length for length in by_length if length <= room]
            room -= _move(by_length, min(fitting) if fitting else max(by_length), room, joined)
    return [*joined, *nameless[used:]]


def _move(by_length: dict[int, list[Sequence[int]]], length: int, at_most: int, joined: list[int]) -> int:
    """Moves the first entries of a list of this length; the rest of it stays. Returns how many."""
    part = by_length[length].pop()
    if not by_length[length]:
        del by_length[length]
    joined += part[:at_most]
    if rest := part[at_most:]:
        by_length.setdefault(len(rest), []).append(rest)
    return min(length, at_most)
