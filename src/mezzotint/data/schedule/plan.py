"""The schedule: which samples an epoch visits, in which batches and steps. Between the catalogue and the loader.

Everything is a pure function of (columns, settings, seed, epoch), independent of rank, worker and history: every
process computes the same plan, and a resumed run the same as an uninterrupted one. Array arithmetic throughout: a
million samples are planned in a fraction of a second.
"""

from __future__ import annotations

import bisect
import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws
from mezzotint.data.schedule._grouping import BatchGroups, arrange_batches
from mezzotint.data.schedule._pairing import Pairs
from mezzotint.data.schedule.columns import PlanColumns
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings
from mezzotint.settings.sections.subjects import RatingSettings
from mezzotint.stages import Epoch

if TYPE_CHECKING:
    pass

_Ints = NDArray[np.int64]
_Rows = NDArray[np.int32]
_CHUNK = 1 << 16  # this many numbers stay in the processor's cache


def epoch_address(settings: DataSettings, seed: int, epoch: int) -> tuple[int, int]:
    """The seed and epoch in the addresses of all loader draws of an epoch. With `epoch_seed=add`, epoch e of seed s is
    epoch 0 of seed s + e. Idempotent."""
    return (seed + epoch, 0) if settings.epoch_seed == "add" else (seed, epoch)


@dataclass(frozen=True, slots=True)
class Visit:
    """One visit to a row of the catalogue: the address of all its random draws. seed, epoch: of `epoch_address`.
    number: number of earlier visits of the epoch to the row."""

    row: int
    key_hash: int
    seed: int
    epoch: int
    number: int

    def draw(self, purpose: str, *where: int) -> int:
        """The address of one of its draws."""
        return draws.key(self.seed, purpose, self.epoch, self.key_hash, self.number, *where)


# --- the batches of an epoch ------------------------------------------------------------------------------------------


def plan(columns: PlanColumns, settings: DataSettings, *, accumulation: int, seed: int, epoch: int) -> Epoch:
    """The batches of one epoch, a pure function of its arguments. `Epoch.order` contains indices of samples. With
    `data.prior.balance=pairs` pairs are planned, half as many per batch (`_pairing.py`)."""
    if columns.prior is None or settings.prior.balance != "pairs":
        planned = _plan_samples(columns, settings, accumulation, seed, epoch)
    else:
        pairs = Pairs.of(_num_visits(columns, settings, seed, epoch), columns.prior)
        each = _of_pairs(columns, pairs, settings)
        planned = pairs.convert_to_samples(_plan_samples(each, settings, accumulation, seed, epoch))
    if columns.choices is None:
        return planned
    # visits of a sample have different numbers in all of its base sizes
    choices, entry = columns.choices, planned.order
    visit = planned.visit * choices.count[entry] + choices.number[entry]
    return replace(planned, order=choices.sample[entry], visit=visit.astype(np.int32))


def _of_pairs(columns: PlanColumns, pairs: Pairs, settings: DataSettings) -> PlanColumns:
    """Columns of a plan of pairs."""
    bucket = np.full(pairs.num, columns.bucket[0])
    hashes, ones = draws.keys(0, "pair", np.arange(pairs.num)), np.ones(pairs.num, np.float32)
    return PlanColumns(hashes, bucket, ones, batch_sizes=(settings.batch_size // 2,))


def _plan_samples(columns: PlanColumns, settings: DataSettings, accumulation: int, seed: int, epoch: int) -> Epoch:
    """The batches of one epoch.

    A sample is visited ⌊repeats⌋ times, and once more with the probability of the fraction; with `rating.share`, as
    often as its rating allows. All visits are put in an order drawn by address, assigned to their groups
    (`_grouping.py`: their bucket and batch size, and their name if they have one) in that order and cut into batches;
    the batches are shuffled by address, and `accumulation` consecutive batches form a step (the last step may have
    fewer). Visits that do not fill a batch form a smaller one (`short`), are filled up with visits of their bucket from
    the first (`fill`) or with their own, drawn by address (`repeat`: the whole batch then counts less) — both counted,
    each a further visit of its sample — or are dropped (`drop`: counted). Without `shuffle` visits keep the order of
    the samples, and batches that of their first visits.
    """
    seed_of, epoch_of = epoch_address(settings, seed, epoch)
    counts = _num_visits(columns, settings, seed, epoch)
    groups, visits = columns.groups(settings), _visits(counts)
    sizes = groups.sizes(counts)
    order = _assign(columns, visits, groups, sizes, (seed_of, epoch_of) if settings.shuffle else None)
    cut = _cut(groups.after_spill(sizes), groups.batch_size, settings.remainder)
    if settings.shuffle:
        name = groups.name[cut.group] if groups.is_named else np.broadcast_to(np.int64(0), len(cut.group))
        batches = arrange_batches(name, accumulation, seed=seed_of, epoch=epoch_of)
    else:
        batches = np.argsort(order[cut.first], kind="stable")
    batches = batches.astype(np.int32)  # with ten million visits every column counts
    bucket = groups.bucket.astype(np.int16)[cut.group[batches]]
    lengths, first = cut.lengths[batches], cut.first[batches]
    factor = np.broadcast_to(np.float32(1), int(lengths.sum()))
    if cut.filled:
        row, visit, factor = _filled_up(order, visits, counts, cut, batches, settings, (seed_of, epoch_of))
    else:
        del cut.group, cut.first, cut.real, cut.lengths, batches
        row, visit = visits.at(_taken(order, first, lengths))
    del order, first
    return Epoch(
        epoch=epoch,
        order=row,
        visit=visit,
        starts=_starts(lengths),
        step_of=np.arange(len(bucket), dtype=np.int32) // np.int32(accumulation),
        bucket=bucket,
        factor=factor,
        left_out=cut.left_out,
        filled=cut.filled,
    )


def _starts(lengths: _Rows) -> _Ints:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))


def _taken(order: _Rows, first: _Rows, lengths: _Rows) -> _Rows:
    """The visits of batches, in batch order. first: the index of each batch in `order`."""
    taken = np.empty(int(lengths.sum()), np.int32)
    done, at_once = 0, max(_CHUNK // max(int(lengths.max(initial=1)), 1), 1)
    for start in range(0, len(first), at_once):
        chunk = slice(start, start + at_once)
        ends = np.cumsum(lengths[chunk])
        within = np.arange(ends[-1]) + np.repeat(first[chunk] - ends + lengths[chunk], lengths[chunk])
        taken[done : done + len(within)] = order[within]
        done += len(within)
    return taken


def _filled_up(
    order: _Rows, visits: _Visits, counts: _Ints, cut: _Cut, batches: NDArray[Any], settings: DataSettings,
    address: tuple[int, int],
) -> tuple[_Rows, _Rows, NDArray[np.float32]]:  # fmt: skip
    """Rows, visits and factors of batches that are filled up."""
    lengths, starts = cut.lengths[batches], _starts(cut.lengths[batches])
    within = np.arange(starts[-1], dtype=np.int32)
    within += np.repeat((cut.first[batches] - starts[:-1]).astype(np.int32), lengths)
    factor = np.ones(len(within), dtype=np.float32)
    if settings.remainder == "repeat":
        again, within = _repeat(within, starts, cut.real[batches], address)
        factor = np.repeat((cut.real[batches] / lengths) ** settings.remainder_power, lengths).astype(np.float32)
    else:
        again, within = _wrap(within, np.repeat(cut.group[batches], lengths), cut)
    row, visit = visits.at(order[within])
    return row, visit + again * counts[row].astype(np.int32), factor


def num_steps(columns: PlanColumns, settings: DataSettings, *, accumulation: int, seed: int, epoch: int) -> int:
    """The number of optimizer steps of one epoch, without planning it."""
    counts = _num_visits(columns, settings, seed, epoch)
    return -(-_num_batches(columns, counts, settings) // accumulation)


@dataclass(frozen=True, slots=True)
class BucketVisits:
    """The visits of an epoch by bucket, (buckets,). total: all; rest: those that do not fill a batch; missing: how many
    more would fill all batches."""

    total: _Ints
    rest: _Ints
    missing: _Ints


def bucket_visits(columns: PlanColumns, settings: DataSettings, *, seed: int, epoch: int, buckets: int) -> BucketVisits:
    """The visits of each bucket in an epoch. buckets: their number."""
    groups, sizes, each = _group_visits(columns, _num_visits(columns, settings, seed, epoch), settings)
    rest = sizes % groups.batch_size
    of_groups = (sizes, rest, np.where(rest > 0, groups.batch_size - rest, 0))
    sums = (np.bincount(groups.bucket, weights=numbers, minlength=buckets) for numbers in of_groups)
    return BucketVisits(*(each * numbers.astype(np.int64) for numbers in sums))


def _group_visits(columns: PlanColumns, counts: _Ints, settings: DataSettings) -> tuple[BatchGroups, _Ints, int]:
    """The groups of an epoch, the visits of each, and how many samples a visit has: two in pairs."""
    is_paired = columns.prior is not None and settings.prior.balance == "pairs"
    if is_paired:
        assert columns.prior is not None
        pairs = Pairs.of(counts, columns.prior)
        columns, counts = _of_pairs(columns, pairs, settings), np.ones(pairs.num, np.int64)
    groups = columns.groups(settings)
    return groups, groups.after_spill(groups.sizes(counts)), 1 + is_paired


def _num_batches(columns: PlanColumns, counts: _Ints, settings: DataSettings) -> int:
    groups, sizes, _ = _group_visits(columns, counts, settings)
    return len(_cut(sizes, groups.batch_size, settings.remainder).group)


@dataclass(slots=True)
class _Cut:
    """Batches before they are shuffled. group, first, lengths: of each batch; `first` is an index into visits sorted by
    group; a filled batch runs past its group's end. real: visits of each batch without fill-ups. starts, sizes: of each
    group among those visits."""

    group: _Rows
    first: _Rows
    lengths: _Rows
    real: _Rows
    starts: _Ints
    sizes: _Ints
    left_out: int
    filled: int


# --- how often each sample is visited ---------------------------------------------------------------------------------


def share_of(rating: RatingSettings, epoch: int) -> float:
    """The share of the samples that an epoch uses; 1 uses all, according to their repeats."""
    if rating.fraction is None or rating.epochs is None:
        return 1.0
    return 1.0 - max(0, min(epoch, rating.epochs - 1) - 1) * (1.0 - rating.fraction) / rating.epochs


def _num_visits(columns: PlanColumns, settings: DataSettings, seed: int, epoch: int) -> _Ints:
    """The visits of each sample, or of each of its base sizes, (n,)."""
    choices = columns.choices
    if choices is None:
        return _visits_of_samples(columns, settings, seed, epoch)
    first = choices.number == 0
    rating = None if columns.rating is None else columns.rating[first]
    samples = PlanColumns(columns.key_hash[first], columns.bucket[first], columns.repeats[first], rating=rating)
    counts = np.asarray(_visits_of_samples(samples, settings, seed, epoch))
    at_each = counts[choices.sample]
    if not choices.is_random.any():
        return at_each
    drawn = np.zeros(len(columns), np.int64)
    entry = np.repeat(np.flatnonzero(first), counts)  # of each visit, the first of its sample
    number = np.arange(len(entry)) - np.repeat(np.cumsum(counts) - counts, counts)
    seed, epoch = epoch_address(settings, seed, epoch)
    chance = draws.uniforms(draws.keys(seed, "resolution", epoch, columns.key_hash[entry], number))
    np.add.at(drawn, entry + (chance * choices.count[entry]).astype(np.int64), 1)
    return np.where(choices.is_random, drawn, at_each)


def _visits_of_samples(columns: PlanColumns, settings: DataSettings, seed: int, epoch: int) -> _Ints:
    share = share_of(settings.rating, epoch)
    seed, epoch = epoch_address(settings, seed, epoch)
    if share < 1.0:
        return _draw_rated(columns, math.ceil(share * len(columns) - 1e-9), seed, epoch)
    if (columns.repeats == 1).all():
        return np.broadcast_to(np.int64(1), len(columns))
    whole = np.floor(columns.repeats)
    chance = (columns.repeats - whole).astype(np.float64)
    counts = whole.astype(np.int64)
    if chance.any():
        # one draw for all, along a random order of samples: each has exactly its probability, and the number of visits
        # of an epoch is the sum of all repeats, rounded down or up
        order = np.argsort(draws.keys(seed, "repeat", epoch, columns.key_hash), kind="stable")
        ends = np.cumsum(chance[order]) + draws.uniform(draws.key(seed, "repeats", epoch))
        counts[order] += np.diff(np.floor(ends), prepend=0.0).astype(np.int64)
    return counts


def _draw_rated(columns: PlanColumns, num: int, seed: int, epoch: int) -> _Ints:
    """One visit for each of `num` samples, drawn without replacement in proportion to their ratings: those whose
    exponential waiting time, at the rate of the rating, is shortest (Efraimidis and Spirakis 2006)."""
    waiting = -np.log1p(-draws.uniforms(draws.keys(seed, "rating", epoch, columns.key_hash)))
    if columns.rating is not None:
        waiting /= columns.rating
    counts = np.zeros(len(columns), np.int64)
    counts[np.argsort(waiting, kind="stable")[:num]] = 1
    return counts


@dataclass(frozen=True, slots=True)
class _Visits:
    """All visits of an epoch, in sample order. sample: of each visit, or None if each sample has
    exactly one. before: (n,) visits of earlier samples."""

    num: int
    sample: _Rows | None
    before: _Rows

    def at(self, which: _Rows) -> tuple[_Rows, _Rows]:
        """The samples of visits, and how often the epoch has used each before."""
        if self.sample is None:
            return which, np.broadcast_to(np.int32(0), len(which))
        sample = self.sample[which]
        return sample, which - self.before[sample]


def _visits(counts: _Ints) -> _Visits:
    total = int(counts.sum())
    if total >= 2**31:
        raise DatasetError(
            f"an epoch has {total:,} visits, but at most {2**31 - 1:,} are possible; lower data.repeats", code="E1208"
        )
    if total == len(counts) and (counts == 1).all():
        return _Visits(total, None, np.zeros(0, np.int32))
    before = (np.cumsum(counts) - counts).astype(np.int32)
    return _Visits(total, np.repeat(np.arange(len(counts), dtype=np.int32), counts), before)


def _assign(
    columns: PlanColumns,
    visits: _Visits,
    groups: BatchGroups,
    sizes: _Ints,
    address: tuple[int, int] | None,
) -> _Rows:
    """All visits, sorted by group and within a group by the draw "order", or without an address in sample order."""
    order = _sorted(columns, visits, lambda which, sample: groups.of_sample[sample], len(groups.cell), address)
    if not groups.is_named:
        return order
    group = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
    rank = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    is_over = (groups.name[group] > 0) & (rank >= (sizes // groups.batch_size * groups.batch_size)[group])
    group[is_over] = groups.cell[group[is_over]]
    of_visit = np.empty(len(order), np.int32)
    of_visit[order] = group
    return _sorted(columns, visits, lambda which, sample: of_visit[which], len(groups.cell), address)


def _sorted(
    columns: PlanColumns,
    visits: _Visits,
    group_of: Callable[[_Rows, _Rows], NDArray[Any]],
    num_groups: int,
    address: tuple[int, int] | None,
) -> _Rows:
    # One sort of integers, several times faster than sorting indices: group, then the draw's upper bits, then the
    # visit's number, which also decides between draws whose stored bits are equal (33 bits or more, up to a hundred
    # million visits without names).
    low = np.uint64(max(visits.num - 1, 0).bit_length())
    high = np.uint64(max(num_groups - 1, 0).bit_length())
    packed = np.empty(visits.num, np.uint64)
    for start in range(0, visits.num, _CHUNK):
        which = np.arange(start, min(start + _CHUNK, visits.num), dtype=np.int32)
        sample, visit = visits.at(which)
        drawn = np.zeros(len(which), np.uint64)
        if address is not None:
            number = 0 if visits.sample is None else visit
            drawn = draws.keys(address[0], "order", address[1], columns.key_hash[sample], number)
            drawn >>= high
        group = group_of(which, sample).astype(np.uint64) << (np.uint64(64) - high) if high else np.uint64(0)
        drawn >>= low
        drawn <<= low
        packed[start : start + _CHUNK] = group | drawn | which.astype(np.uint64)
    packed.sort()
    order, mask = packed.view(np.int32), np.uint64((1 << int(low)) - 1)
    for start in range(0, visits.num, _CHUNK):  # in place; half of the memory is freed afterwards
        chunk = slice(start, min(start + _CHUNK, visits.num))
        order[chunk] = (packed[chunk] & mask).astype(np.int32)
    del order
    packed.resize(-(-visits.num // 2), refcheck=False)
    return packed.view(np.int32)[: visits.num]


def _cut(sizes: _Ints, size: _Ints, remainder: str) -> _Cut:
    """sizes: visits of each group. size: the batch size of each group."""
    drop, fill = remainder == "drop", remainder in ("fill", "repeat")
    num = sizes // size if drop else -(-sizes // size)
    group = np.repeat(np.arange(len(sizes), dtype=np.int32), num)
    starts = np.cumsum(sizes) - sizes
    nth = np.arange(len(group)) - np.repeat(np.cumsum(num) - num, num)
    nth *= size[group]
    real = np.minimum(size[group], sizes[group] - nth).astype(np.int32)
    nth += starts[group]
    return _Cut(
        group,
        nth.astype(np.int32),
        size[group].astype(np.int32) if fill else real,
        real,
        starts,
        sizes,
        left_out=int((sizes - num * size).sum()) if drop else 0,
        filled=int((num * size - sizes).sum()) if fill else 0,
    )


def _wrap(within: _Rows, group: _Ints, cut: _Cut) -> tuple[_Rows, _Rows]:
    """Indexes past their group's end wrap around to its start: returns the number of wraps, and the new indexes."""
    again, rest = np.divmod(within - cut.starts[group], cut.sizes[group])
    return again.astype(np.int32), (cut.starts[group] + rest).astype(np.int32)


def _repeat(within: _Rows, starts: _Ints, real: _Rows, address: tuple[int, int]) -> tuple[_Rows, _Rows]:
    """Visits past the real ones of a batch become copies of an earlier one in the batch, drawn by address; one drawn
    once is therefore more likely to be drawn again. Returns the number of the copy, and the new indexes."""
    seed, epoch = address
    again, within = np.zeros_like(within), within.copy()
    for batch in np.flatnonzero(real < np.diff(starts)).tolist():
        first, num = int(starts[batch]), int(real[batch])
        copies = dict.fromkeys(within[first : first + num].tolist(), 0)
        for index in range(first + num, int(starts[batch + 1])):
            drawn = draws.below(draws.key(seed, "fill", epoch, int(within[first]), index - first), index - first)
            within[index] = source = int(within[first + drawn])
            copies[source] += 1
            again[index] = copies[source]
    return again, within


# --- steps and epochs -------------------------------------------------------------------------------------------------


class Timeline:
    """Maps steps of the run to epochs; shared by the run and its loader, which may be another thread.

    With integer repeats all epochs have the same length. With fractional ones, ratings, or random base sizes, each has
    its own length, computed when it is first reached. Raises DatasetError E1207 if an epoch has no batches.
    """

    def __init__(self, columns: PlanColumns, settings: DataSettings, accumulation: int, seed: int) -> None:
        self.columns = columns
        self.seed = seed
        self._settings = settings
        self._accumulation = accumulation
        self._lock = threading.RLock()
        is_drawn = columns.choices is not None and bool(columns.choices.is_random.any())
        is_whole = bool((columns.repeats == np.floor(columns.repeats)).all())
        self._is_even = settings.rating.fraction is None and is_whole and not is_drawn
        self._ends: list[int] = []
        self._plans: OrderedDict[int, Epoch] = OrderedDict()

    def locate(self, step: int) -> tuple[int, int]:
        """The epoch of a step of the run (both from 0), and the step's index in it."""
        if self._is_even:
            return divmod(step, self.steps_of(0))
        with self._lock:
            while not self._ends or self._ends[-1] <= step:
                self._count()
        epoch = bisect.bisect_right(self._ends, step)
        return epoch, step - (self._ends[epoch - 1] if epoch else 0)

    def steps_of(self, epoch: int) -> int:
        """Number of optimizer steps of an epoch (counted from 0). Raises DatasetError E1207 if it has no batches."""
        which = 0 if self._is_even else epoch
        with self._lock:
            while len(self._ends) <= which:
                self._count()
        return self._ends[which] - (self._ends[which - 1] if which else 0)

    def steps_until(self, epochs: float) -> int:
        """Number of steps of the first `epochs` epochs; a part of an epoch is rounded up to a full step."""
        whole, part = int(epochs), epochs - int(epochs)
        before = whole * self.steps_of(0) if self._is_even else sum(map(self.steps_of, range(whole)))
        return before + (math.ceil(part * self.steps_of(whole) - 1e-9) if part else 0)

    def epochs_in(self, steps: int) -> float:
        """Number of epochs of `steps` steps. Epochs not reached yet are assumed to be as long as the others."""
        if self._is_even or not steps:
            return steps / max(1, self.steps_of(0))
        self.steps_of(0)
        if steps > self._ends[-1]:
            return len(self._ends) * steps / max(1, self._ends[-1])
        epoch, index = self.locate(steps - 1)
        return epoch + (index + 1) / self.steps_of(epoch)

    def epoch(self, epoch: int) -> Epoch:
        """The plan of an epoch; the last two are cached."""
        with self._lock:
            if epoch not in self._plans:
                self._plans[epoch] = plan(
                    self.columns, self._settings, accumulation=self._accumulation, seed=self.seed, epoch=epoch
                )
                if len(self._plans) > 2:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(epoch)
            return self._plans[epoch]

    def _count(self) -> None:
        steps = num_steps(
            self.columns, self._settings, accumulation=self._accumulation, seed=self.seed, epoch=len(self._ends)
        )
        if steps == 0 and (self._settings.rating.fraction is not None or not self._can_have_batches()):
            raise DatasetError(
                f"{len(self.columns)} samples do not fill a batch of {self._settings.batch_size} with "
                f"data.remainder={self._settings.remainder}; set data.remainder=short, or lower data.batch_size",
                code="E1207",
            )
        self._ends.append((self._ends[-1] if self._ends else 0) + steps)

    def _can_have_batches(self) -> bool:
        at_most = np.ceil(self.columns.repeats).astype(np.int64)
        return _num_batches(self.columns, at_most, self._settings) > 0
