"""The input of a plan: what it needs to know of each sample. Between the catalogue and the plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mezzotint import draws
from mezzotint.data.buckets import buckets
from mezzotint.data.schedule import condition_shapes
from mezzotint.data.schedule._grouping import BatchGroups, batch_groups
from mezzotint.data.schedule._pairing import balance_repeats
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue

_Rows = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Choices:
    """Entries of samples that are trained in several base sizes: each sample once for each, one after the other.
    sample: (n,) int32, ascending, of each entry. number, count: (n,) int16, which of the sample's base sizes, of how
    many. is_random: (n,), whether a visit draws one of them; otherwise the sample is visited at each."""

    sample: _Rows
    number: NDArray[np.int16]
    count: NDArray[np.int16]
    is_random: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PlanColumns:
    """The input of a plan for each sample, or for each of its base sizes (`choices`). key_hash: (n,) uint64. bucket:
    (n,) int16, index in `buckets.table`. repeats: (n,) float32 or float64, above 0. group: (n,) int32, 0 without a
    name, or None if no sample has one. rating: (n,) float32, above 0, or None if all ratings are equal. prior: (n,),
    which are class images, or None. batch_sizes: those of the sets, once for each
    size of condition images, or () for that of the settings; size_of: (n,) index in them, or None if there is one.
    choices: None if each sample has one base size."""

    key_hash: NDArray[np.uint64]
    bucket: NDArray[np.int16]
    repeats: NDArray[np.float32] | NDArray[np.float64]
    group: NDArray[np.int32] | None = None
    rating: NDArray[np.float32] | None = None
    prior: NDArray[np.bool_] | None = None
    batch_sizes: tuple[int, ...] = ()
    size_of: NDArray[np.int16] | None = None
    choices: Choices | None = None

    def __len__(self) -> int:
        return len(self.key_hash)

    def groups(self, settings: DataSettings) -> BatchGroups:
        """The groups of samples that may share a batch."""
        return batch_groups(self.bucket, self.group, self.batch_sizes or (settings.batch_size,), self.size_of)


def plan_columns(catalogue: Catalogue, rows: ArrayLike, settings: DataSettings) -> PlanColumns:
    """The columns of rows of a catalogue. `Epoch.order` then contains indices into `rows`. Raises DatasetError E1454 if
    images are paired and have several sizes."""
    indexes, sets = np.asarray(rows, dtype=np.int64), settings.image_sets()
    placed = catalogue.buckets_of(indexes, settings)
    choices = None
    if not placed.is_one_each:
        random = np.array([one.settings.resolution_mode == "random" for one in sets])
        sample = placed.sample.astype(np.int32)
        indexes = indexes[sample]
        choices = Choices(sample, placed.choice, placed.choices, random[catalogue.set[indexes]])
    group, rating = catalogue.overrides.group[indexes], catalogue.overrides.rating[indexes]
    prior = catalogue.overrides.prior[indexes] != 0
    repeats: NDArray[np.float32] | NDArray[np.float64] = catalogue.repeats[indexes]
    if prior.any() and settings.prior.balance == "pairs":
        _refuse_several_sizes(len(np.unique(placed.bucket)))
    if prior.any() and settings.prior.balance == "visits":
        per_visit = 1 if choices is None else np.where(choices.is_random, choices.count, 1)
        repeats = balance_repeats(repeats, prior, per_visit)
    sizes = tuple(dict.fromkeys(one.settings.batch_size for one in sets))
    size_of = np.array([sizes.index(one.settings.batch_size) for one in sets], np.int16)[catalogue.set[indexes]]
    shape = condition_shapes.shapes_of(catalogue, indexes, placed.bucket, buckets.table(settings), settings)
    if shape is not None:
        kinds, kind = np.unique(np.stack([size_of, shape], axis=1), axis=0, return_inverse=True)
        sizes, size_of = tuple(sizes[number] for number in kinds[:, 0].tolist()), kind.reshape(-1).astype(np.int16)
    return PlanColumns(
        _hashes(catalogue.key_hash[indexes], choices),
        placed.bucket,
        repeats,
        group=group if group.any() else None,
        rating=rating if (rating != 1).any() else None,
        prior=prior if prior.any() else None,
        batch_sizes=sizes,
        size_of=size_of if len(sizes) > 1 else None,
        choices=choices,
    )


def _hashes(key_hash: NDArray[np.uint64], choices: Choices | None) -> NDArray[np.uint64]:
    """The hashes that order visits: those of the samples, and others for further base sizes."""
    if choices is None:
        return key_hash
    others = draws.keys(0, "resolution", key_hash, choices.number.astype(np.uint64))
    return np.where(choices.number == 0, key_hash, others)


def _refuse_several_sizes(num: int) -> None:
    if num > 1:
        raise DatasetError(
            f"data.prior.balance=pairs needs images of one size in both halves of a batch, but there are {num} "
            "sizes; set data.buckets.shape=square, or data.prior.balance=visits",
            code="E1454",
        )
