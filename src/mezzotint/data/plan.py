"""The schedule is data: which samples an epoch visits, in which batches and steps. It stands between the catalogue
and the loader.

Everything here is a pure function of (columns, settings, seed, epoch). No rank, worker or history enters, so every
process works out the same plan, and a resumed run the same as an undisturbed one. Array arithmetic throughout: a
million samples are planned in a fraction of a second. `placement` says where a visit's picture is cut.
"""

from __future__ import annotations

import bisect
import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mezzotint import draws
from mezzotint.data import buckets
from mezzotint.errors import DatasetError
from mezzotint.recipe.data import DataSettings
from mezzotint.shapes import Size, cover
from mezzotint.stages import Epoch, Placement

if TYPE_CHECKING:
    from mezzotint.data.catalogue import Catalogue

_Ints = NDArray[np.int64]
_Rows = NDArray[np.int32]
_CHUNK = 1 << 16  # numbers that stay in a processor's cache while they are worked on


@dataclass(frozen=True, slots=True)
class PlanColumns:
    """What a plan needs of each sample. key_hash: (n,) uint64. bucket: (n,) int16, index in `buckets.table`. repeats:
    (n,) float32, above 0."""

    key_hash: NDArray[np.uint64]
    bucket: NDArray[np.int16]
    repeats: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.key_hash)


def plan_columns(catalogue: Catalogue, rows: ArrayLike, settings: DataSettings) -> PlanColumns:
    """The columns of some rows of a catalogue. `Epoch.order` then holds indices into `rows`."""
    chosen = np.asarray(rows, dtype=np.int64)
    bucket = buckets.assign(catalogue.width[chosen], catalogue.height[chosen], buckets.table(settings))
    return PlanColumns(catalogue.key_hash[chosen], bucket, catalogue.repeats[chosen])


def epoch_address(settings: DataSettings, seed: int, epoch: int) -> tuple[int, int]:
    """The seed and epoch by which every loader draw of an epoch is addressed. With `epoch_seed=add`, epoch e of seed s
    is epoch 0 of seed s + e. Applying it twice changes nothing more."""
    return (seed + epoch, 0) if settings.epoch_seed == "add" else (seed, epoch)


# --- where a picture is cut -------------------------------------------------------------------------------------------


def place(size: Size, bucket: Size, settings: DataSettings, *, crop_key: int, flip_key: int) -> Placement:
    """Where a picture of `size` lies in `bucket`: resized to the smallest size that covers it, cropped, then mirrored.

    crop_key, flip_key: addresses of the two draws (`draws.key`). A centre crop begins at half of what is too much,
    halves rounded to even, as torchvision's CenterCrop does.
    """
    resized = cover(size, bucket)
    rows, columns = resized.height - bucket.height, resized.width - bucket.width
    if settings.crop == "center":
        corner = (round(rows / 2), round(columns / 2))
    else:  # one of the two is 0, so one draw serves both
        corner = (draws.below(crop_key, rows + 1), draws.below(crop_key, columns + 1))
    return Placement(bucket, resized, corner, flipped=draws.uniform(flip_key) < settings.flip)


def placement(
    catalogue: Catalogue,
    row: int,
    bucket: Size,
    settings: DataSettings,
    *,
    seed: int,
    epoch: int,
    visit: int,
    variant: int | None = None,
) -> Placement:
    """Where a sample of the catalogue lies in its bucket at one visit.

    variant: None draws crop and flip at (seed, epoch, sample, visit). A number draws them at (seed, sample, variant)
    instead, the same in every epoch: these are the placements that a latent cache keeps.
    """
    size = Size(int(catalogue.width[row]), int(catalogue.height[row]))
    key_hash = int(catalogue.key_hash[row])
    if variant is None:
        seed, epoch = epoch_address(settings, seed, epoch)
        crop_key = draws.key(seed, "crop", epoch, key_hash, visit)
        flip_key = draws.key(seed, "flip", epoch, key_hash, visit)
    else:
        crop_key = draws.key(seed, "crop-variant", key_hash, variant)
        flip_key = draws.key(seed, "flip-variant", key_hash, variant)
    return place(size, bucket, settings, crop_key=crop_key, flip_key=flip_key)


# --- the batches of an epoch ------------------------------------------------------------------------------------------


def plan(columns: PlanColumns, settings: DataSettings, *, accumulation: int, seed: int, epoch: int) -> Epoch:
    """The batches of one epoch, a pure function of its arguments. `Epoch.order` holds indices into the columns.

    A sample is visited ⌊repeats⌋ times, and once more with the fractional chance. All visits are put in an order drawn
    by address, dealt to their buckets in that order and cut into batches of `batch_size`; the batches are shuffled by
    address, and `accumulation` of them after one another make a step (the last step may have fewer). What does not
    fill a batch becomes a smaller one (`short`), is filled up with visits of its bucket from the first on (`fill`:
    counted, each a further visit of its sample), or is left out (`drop`: counted).
    """
    seed_of, epoch_of = epoch_address(settings, seed, epoch)
    counts = _num_visits(columns, seed_of, epoch_of)
    visits = _visits(counts)
    order = _dealt(columns, visits, seed_of, epoch_of)
    cut = _cut(columns, counts, settings)
    batches = np.argsort(draws.keys(seed_of, "batches", epoch_of, np.arange(len(cut.bucket))), kind="stable")
    bucket, lengths = cut.bucket[batches], cut.lengths[batches]
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    within = np.arange(starts[-1], dtype=np.int32)
    within += np.repeat((cut.first[batches] - starts[:-1]).astype(np.int32), lengths)
    again: _Rows | int = 0
    if cut.filled:
        again, within = _wrapped(within, np.repeat(bucket, lengths), cut)
    row, visit = visits.at(order[within])
    return Epoch(
        epoch=epoch,
        order=row,
        visit=visit if not cut.filled else visit + again * counts[row].astype(np.int32),
        starts=starts,
        step_of=(np.arange(len(batches)) // accumulation).astype(np.int32),
        bucket=bucket,
        factor=np.ones(len(row), dtype=np.float32),
        left_out=cut.left_out,
        filled=cut.filled,
    )


def num_steps(columns: PlanColumns, settings: DataSettings, *, accumulation: int, seed: int, epoch: int) -> int:
    """The optimizer steps of one epoch, without planning it."""
    counts = _num_visits(columns, *epoch_address(settings, seed, epoch))
    batches = len(_cut(columns, counts, settings).bucket)
    return -(-batches // accumulation)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Batches before they are shuffled. bucket, first, lengths: of each batch; `first` counts visits sorted by bucket,
    and in a filled batch runs past its bucket's end. starts, sizes: of each bucket among those visits."""

    bucket: NDArray[np.int16]
    first: _Ints
    lengths: _Ints
    starts: _Ints
    sizes: _Ints
    left_out: int
    filled: int


def _num_visits(columns: PlanColumns, seed: int, epoch: int) -> _Ints:
    whole = np.floor(columns.repeats)
    chance = columns.repeats - whole
    counts = whole.astype(np.int64)
    if chance.any():
        counts += draws.uniforms(draws.keys(seed, "repeat", epoch, columns.key_hash)) < chance
    return counts


@dataclass(frozen=True, slots=True)
class _Visits:
    """All visits of an epoch, those of a sample after one another. sample: their sample, or None when every sample has
    exactly one. before: (n,) visits of earlier samples."""

    num: int
    sample: _Rows | None
    before: _Rows

    def at(self, which: _Rows) -> tuple[_Rows, _Rows]:
        """The samples of some visits, and how often the epoch has used each before."""
        if self.sample is None:
            return which, np.zeros(len(which), np.int32)
        sample = self.sample[which]
        return sample, which - self.before[sample]


def _visits(counts: _Ints) -> _Visits:
    total = int(counts.sum())
    if total >= 2**31:
        raise DatasetError(
            f"an epoch has {total:,} visits, at most {2**31 - 1:,} are possible; lower data.repeats", code="E1208"
        )
    before = (np.cumsum(counts) - counts).astype(np.int32)
    if total == len(counts) and (counts == 1).all():
        return _Visits(total, None, before)
    return _Visits(total, np.repeat(np.arange(len(counts), dtype=np.int32), counts), before)


def _dealt(columns: PlanColumns, visits: _Visits, seed: int, epoch: int) -> _Rows:
    """All visits, sorted by bucket and within a bucket by the draw "order"."""
    # One sort of plain numbers, several times faster than sorting indices: bucket, then the draw's upper bits, then
    # the visit's own number, which also decides between draws that agree in the bits there is room for (33 and more
    # of them up to a hundred million visits).
    low = np.uint64(max(visits.num - 1, 0).bit_length())
    high = np.uint64(int(columns.bucket.max(initial=0)).bit_length())
    packed = np.empty(visits.num, np.uint64)
    for start in range(0, visits.num, _CHUNK):
        which = np.arange(start, min(start + _CHUNK, visits.num), dtype=np.int32)
        sample, visit = visits.at(which)
        drawn = draws.keys(seed, "order", epoch, columns.key_hash[sample], visit) >> high
        bucket = columns.bucket[sample].astype(np.uint64) << (np.uint64(64) - high) if high else np.uint64(0)
        packed[start : start + _CHUNK] = bucket | (drawn >> low << low) | which.astype(np.uint64)
    packed.sort()
    return (packed & np.uint64((1 << int(low)) - 1)).astype(np.int32)


def _cut(columns: PlanColumns, counts: _Ints, settings: DataSettings) -> _Cut:
    size = settings.batch_size
    sizes = np.bincount(columns.bucket, weights=counts).astype(np.int64)  # exact: below 2⁵³
    drop, fill = settings.remainder == "drop", settings.remainder == "fill"
    num = sizes // size if drop else -(-sizes // size)
    bucket = np.repeat(np.arange(len(sizes)), num)
    nth = np.arange(len(bucket)) - np.repeat(np.cumsum(num) - num, num)
    starts = np.cumsum(sizes) - sizes
    lengths = np.full(len(bucket), size) if fill else np.minimum(size, sizes[bucket] - nth * size)
    return _Cut(
        bucket.astype(np.int16),
        starts[bucket] + nth * size,
        lengths,
        starts,
        sizes,
        left_out=int((sizes - num * size).sum()) if drop else 0,
        filled=int((num * size - sizes).sum()) if fill else 0,
    )


def _wrapped(within: _Rows, bucket: NDArray[np.int16], cut: _Cut) -> tuple[_Rows, _Rows]:
    """Places that run past their bucket's end begin anew at its start: how often they did, and where they are."""
    again, rest = np.divmod(within - cut.starts[bucket], cut.sizes[bucket])
    return again.astype(np.int32), (cut.starts[bucket] + rest).astype(np.int32)


# --- steps and epochs -------------------------------------------------------------------------------------------------


class Timeline:
    """From a step of the run to its epoch and place in it.

    With whole repeats all epochs are equally long. With fractional ones each has its own length, counted once, when it
    is first reached. Raises DatasetError E1207 when an epoch has no batch at all.
    """

    def __init__(self, columns: PlanColumns, settings: DataSettings, accumulation: int, seed: int) -> None:
        self._columns = columns
        self._settings = settings
        self._accumulation = accumulation
        self._seed = seed
        self._is_even = bool((columns.repeats == np.floor(columns.repeats)).all())
        self._ends: list[int] = []
        self._plans: OrderedDict[int, Epoch] = OrderedDict()

    def locate(self, step: int) -> tuple[int, int]:
        """The epoch of a step of the run (both from 0), and the step's place in it."""
        if self._is_even:
            return divmod(step, self.steps_of(0))
        while not self._ends or self._ends[-1] <= step:
            self._count()
        epoch = bisect.bisect_right(self._ends, step)
        return epoch, step - (self._ends[epoch - 1] if epoch else 0)

    def steps_of(self, epoch: int) -> int:
        """Steps of an epoch."""
        which = 0 if self._is_even else epoch
        while len(self._ends) <= which:
            self._count()
        return self._ends[which] - (self._ends[which - 1] if which else 0)

    def steps_until(self, epochs: float) -> int:
        """Steps of so many epochs from the start; a part of an epoch is rounded up to a whole step."""
        whole, part = int(epochs), epochs - int(epochs)
        before = whole * self.steps_of(0) if self._is_even else sum(map(self.steps_of, range(whole)))
        return before + (math.ceil(part * self.steps_of(whole) - 1e-9) if part else 0)

    def epoch(self, epoch: int) -> Epoch:
        """The plan of an epoch; the two last asked for are kept."""
        if epoch not in self._plans:
            self._plans[epoch] = plan(
                self._columns, self._settings, accumulation=self._accumulation, seed=self._seed, epoch=epoch
            )
            if len(self._plans) > 2:
                self._plans.popitem(last=False)
        self._plans.move_to_end(epoch)
        return self._plans[epoch]

    def _count(self) -> None:
        steps = num_steps(
            self._columns, self._settings, accumulation=self._accumulation, seed=self._seed, epoch=len(self._ends)
        )
        at_most = np.ceil(self._columns.repeats).astype(np.int64)
        if steps == 0 and not len(_cut(self._columns, at_most, self._settings).bucket):
            raise DatasetError(
                f"{len(self._columns)} samples make no batch of {self._settings.batch_size} with "
                f"data.remainder={self._settings.remainder}; set data.remainder=short, or lower data.batch_size",
                code="E1207",
            )
        self._ends.append((self._ends[-1] if self._ends else 0) + steps)
