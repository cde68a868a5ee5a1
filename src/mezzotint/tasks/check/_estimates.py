"""What a run will do and need, counted ahead: batches of each bucket, steps, exports, entries of the cache, disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mezzotint import durable
from mezzotint.data.buckets import buckets
from mezzotint.data.cache.store import Store
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.schedule.plan import Timeline, plan
from mezzotint.errors import StorageError
from mezzotint.recipe.base import Every, with_values
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.shapes import Size, latent_size
from mezzotint.stages import Epoch
from mezzotint.tasks import held_out
from mezzotint.tasks.assemble import Caches, Dataset
from mezzotint.tasks.cache.inventory import latent_entries, text_entries
from mezzotint.tasks.check._model_files import Component
from mezzotint.tasks.check.memory import Memory, bytes_of
from mezzotint.training.precision.policy import DTYPES

LOOKED_UP = 200_000
"""So many cache entries are looked for one by one; of more, only the number is told."""


@dataclass(frozen=True, slots=True)
class BucketRow:
    """A bucket in the first epoch. visits: how often its pictures are to be seen. batches: how many it makes. largest:
    samples of its largest batch. rest: visits that do not fill a batch; short, repeated, left_out: what becomes of
    them under the remainder policy, as samples of the smaller batch, visits repeated, visits left out."""

    bucket: Size
    pictures: int
    visits: int
    batches: int
    largest: int
    rest: int
    short: int
    repeated: int
    left_out: int


@dataclass(frozen=True, slots=True)
class Length:
    """An epoch's and the run's length. batches_an_epoch, steps_an_epoch: of the first epoch; with fractional repeats
    others differ."""

    batches_an_epoch: int
    steps_an_epoch: int
    steps: int
    epochs: float


@dataclass(frozen=True, slots=True)
class CacheNeed:
    """Entries of a kind ("latents", "text") that the run wants. present: how many are there; None when they are too
    many to look for. missing_bytes: what is to be written."""

    kind: str
    entries: int
    bytes: int
    present: int | None
    missing_bytes: int


@dataclass(frozen=True, slots=True)
class Disk:
    """What the run writes. checkpoint, export: bytes of one. kept: checkpoints that stay. there: checkpoints that lie
    in the run folder already. exports: how many the run makes; None when wall time decides. free: bytes at the run
    folder and at the cache folder; the same bytes when one_disk. cache: bytes still to be written."""

    folder: Path
    cache_folder: Path
    checkpoint: int
    kept: int
    there: int
    export: int
    exports: int | None
    cache: int
    free: int
    free_cache: int
    one_disk: bool

    @property
    def checkpoints(self) -> int:
        """Bytes of all kept checkpoints, and of the one that is written before an old one goes."""
        return (self.kept + 1) * self.checkpoint

    @property
    def wanted(self) -> int:
        """Bytes at the run folder for everything that the run will have written and kept."""
        exports = self.export * (1 if self.exports is None else self.exports)
        return max(0, self.kept + 1 - self.there) * self.checkpoint + exports + (self.cache if self.one_disk else 0)

    @property
    def least(self) -> int:
        """Bytes at the run folder without which it cannot save twice: the second is written beside the first."""
        return max(1, 2 - self.there) * self.checkpoint + (self.cache if self.one_disk else 0)


def bucket_rows(dataset: Dataset, settings: DataSettings, *, accumulation: int, seed: int) -> tuple[BucketRow, ...]:
    """The buckets that hold pictures, from tall to wide, as the first epoch deals with them."""
    table = buckets.table(settings)
    columns = dataset.timeline.columns
    whole = with_values(settings, {"remainder": "short"})
    visits = _per_bucket(plan(columns, whole, accumulation=accumulation, seed=seed, epoch=0), len(table))
    epoch = dataset.timeline.epoch(0)
    lengths = np.diff(epoch.starts)
    pictures = np.bincount(columns.bucket, minlength=len(table))
    batches = np.bincount(epoch.bucket, minlength=len(table))
    largest = np.zeros(len(table), dtype=np.int64)
    np.maximum.at(largest, epoch.bucket, lengths)
    return tuple(
        _bucket_row(table[i], int(pictures[i]), int(visits[i]), int(batches[i]), int(largest[i]), settings)
        for i in np.flatnonzero(pictures)
    )


def _per_bucket(epoch: Epoch, count: int) -> NDArray[np.int64]:
    return np.bincount(epoch.bucket, weights=np.diff(epoch.starts), minlength=count).astype(np.int64)


def _bucket_row(
    bucket: Size, pictures: int, visits: int, batches: int, largest: int, settings: DataSettings
) -> BucketRow:
    rest = visits % settings.batch_size
    policy = settings.remainder
    return BucketRow(
        bucket,
        pictures,
        visits,
        batches,
        largest,
        rest,
        short=rest if policy == "short" else 0,
        repeated=(settings.batch_size - rest) if policy in ("fill", "repeat") and rest else 0,
        left_out=rest if policy == "drop" else 0,
    )


def length(timeline: Timeline, steps: int) -> Length:
    """The run's length, given its steps."""
    epoch = timeline.epoch(0)
    return Length(epoch.num_batches, epoch.num_steps, steps, timeline.epochs_in(steps))


def times_due(intervals: Sequence[Every], *, steps: int, steps_an_epoch: int) -> int | None:
    """How often something is due in a run, its end not counted; None when wall time decides. What two intervals want
    of one step counts once."""
    if any(every.unit == "minutes" for every in intervals):
        return None
    due: set[int] = set()
    for every in intervals:
        length = int(every.count) * (1 if every.unit == "steps" else max(1, steps_an_epoch))
        due.update(range(length, steps, length))
    return len(due)


def cache_needs(
    recipe: Recipe, dataset: Dataset, caches: Caches, memory: Memory, extra_captions: Sequence[str]
) -> tuple[CacheNeed, ...]:
    """What the caches that the recipe asks for will hold, pictures that are only measured included."""
    seen = [(catalogue, rows) for catalogue, rows, _ in held_out.in_use(recipe, dataset)]
    needs = []
    if caches.latents is not None:
        needs.append(_added([_latents(recipe, caches, memory, catalogue, rows) for catalogue, rows in seen]))
    if caches.text is not None:
        row_bytes = bytes_of(memory.text_numbers, recipe.data.cache.dtype)
        addresses = np.concatenate(
            [text_entries(catalogue, rows, caches.text, extra_captions).addresses for catalogue, rows in seen]
        )
        addresses = np.unique(addresses, axis=0)
        found = caches.text.rows()
        present = 0 if found is None else int(found.has(addresses, checks=False).sum())
        needs.append(_need("text", len(addresses), len(addresses) * row_bytes, present, row_bytes))
    return tuple(needs)


def _added(needs: Sequence[CacheNeed]) -> CacheNeed:
    known = [need.present for need in needs if need.present is not None]
    return CacheNeed(
        needs[0].kind,
        sum(need.entries for need in needs),
        sum(need.bytes for need in needs),
        sum(known) if len(known) == len(needs) else None,
        sum(need.missing_bytes for need in needs),
    )


def _latents(
    recipe: Recipe, caches: Caches, memory: Memory, catalogue: Catalogue, rows: NDArray[np.int32]
) -> CacheNeed:
    latents = caches.latents
    assert latents is not None
    entries = total = missing = 0
    present: int | None = 0
    if len(rows) * latents.views <= LOOKED_UP:
        for wanted in latent_entries(catalogue, rows, recipe.data, latents):
            here = _present(latents.store(wanted.bucket, is_still=wanted.is_still), wanted.addresses)
            entry = _latent_bytes(recipe, memory, wanted.bucket)
            count = len(wanted.addresses)
            entries, total, missing = entries + count, total + count * entry, missing + (count - here) * entry
            present = (present or 0) + here
        return CacheNeed("latents", entries, total, present, missing)
    table = buckets.table(recipe.data)
    counts = np.bincount(catalogue.buckets_of(rows, recipe.data), minlength=len(table))
    for size, count in zip(table, (counts * latents.views).tolist(), strict=True):
        entries, total = entries + count, total + count * _latent_bytes(recipe, memory, size)
    return CacheNeed("latents", entries, total, None, total)


def _latent_bytes(recipe: Recipe, memory: Memory, bucket: Size) -> int:
    place = latent_size(bucket, memory.grid.pixels, memory.grid.frames)
    content = 2 if recipe.data.cache.content == "moments" else 1
    return bytes_of(content * memory.grid.channels * place.pixels, recipe.data.cache.dtype)


def _present(store: Store | None, addresses: NDArray[np.uint8]) -> int:
    return 0 if store is None else int((store.find(addresses) >= 0).sum())


def _need(kind: str, entries: int, total: int, present: int, entry: int) -> CacheNeed:
    return CacheNeed(kind, entries, total, present, (entries - present) * entry)


def export_bytes(recipe: Recipe, memory: Memory, files: Sequence[Component]) -> int:
    """Bytes of one export: what is trained (or random) in the export's type, everything else as it lies there; and of
    the single file beside the folder, in its own type, or of the file of what is trained alone."""
    asked = recipe.run.export
    numbers = {part.name: part.parameters for part in memory.parts}
    if asked.parts == "trained":
        of_file = DTYPES[asked.single_file_dtype or asked.dtype].itemsize
        return sum(numbers[part] for part in recipe.model.train) * of_file
    anew = {name: count for name, count in numbers.items() if _is_rewritten(recipe, name)}
    folder = sum(component.bytes for component in files if component.part not in anew)
    folder += sum(anew.values()) * DTYPES[asked.dtype].itemsize
    if asked.trained_file != "none":
        folder += (
            sum(numbers[part] for part in recipe.model.train) * DTYPES[asked.single_file_dtype or asked.dtype].itemsize
        )
    if not asked.single_file:
        return folder
    if asked.single_file_dtype is None:
        return (
            folder
            + sum(c.bytes for c in files if c.part in numbers and c.part not in anew)
            + (sum(anew.values()) * DTYPES[asked.dtype].itemsize)
        )
    return folder + sum(numbers.values()) * DTYPES[asked.single_file_dtype].itemsize


def _is_rewritten(recipe: Recipe, part: str) -> bool:
    return recipe.model.weights == "random" or part in recipe.model.train


def disk(
    recipe: Recipe, folder: Path, cache_folder: Path, memory: Memory, *,
    there: int, export: int, exports: int | None, saves: int | None, cache: int,
) -> Disk:  # fmt: skip
    """The disk at hand against what the run writes. saves: how many checkpoints the run writes, where that is known."""
    models = 1 if recipe.optim.ema.rule == "none" else 2
    return Disk(
        folder=folder,
        cache_folder=cache_folder,
        checkpoint=memory.checkpoint,
        kept=recipe.run.save.keep or saves or there + 2,
        there=there,
        export=export * models,
        exports=exports,
        cache=cache,
        free=durable.free_bytes(folder),
        free_cache=durable.free_bytes(cache_folder),
        one_disk=_existing(folder).stat().st_dev == _existing(cache_folder).stat().st_dev,
    )


def refuse_full_disk(disk: Disk) -> None:
    """Raises StorageError E1710 when two checkpoints do not fit, E1711 when the cache does not."""
    if disk.cache > disk.free_cache:
        raise StorageError(
            f"{disk.cache_folder}: the cache needs {disk.cache:,} bytes more and {disk.free_cache:,} are free; make "
            "room, set data.cache.path to another disk, or data.cache.dtype=fp16",
            code="E1711",
        )
    if disk.least > disk.free:
        beside = ", the cache on the same disk included," if disk.one_disk and disk.cache else ""
        raise StorageError(
            f"{disk.folder}: two checkpoints{beside} need {disk.least:,} bytes and {disk.free:,} are free; make "
            "room, or set run.folder to another disk",
            code="E1710",
        )


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.absolute().parents) if place.exists())
