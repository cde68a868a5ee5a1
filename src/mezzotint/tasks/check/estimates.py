"""Estimates of what a run will do and need: batches of each bucket, steps, exports, cache entries, disk."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mezzotint import durable
from mezzotint.data.buckets import buckets
from mezzotint.data.cache.entries import LatentCache
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.schedule.plan import Timeline, bucket_visits
from mezzotint.errors import StorageError
from mezzotint.settings.base import Every
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.tokens import PART
from mezzotint.shapes import Size, latent_size
from mezzotint.tasks import assemble
from mezzotint.tasks.assemble import Caches, Dataset
from mezzotint.tasks.cache.inventory import in_use, latent_entries, text_entries
from mezzotint.tasks.check._model_files import Component
from mezzotint.tasks.check.memory import Memory, bytes_of
from mezzotint.training.precision.policy import DTYPES

LOOKED_UP = 200_000
"""Up to so many cache entries are looked up one by one; of more, only the number is reported."""


@dataclass(frozen=True, slots=True)
class BucketRow:
    """A bucket in the first epoch. visits: of its images. batches: their number. largest: samples of its largest batch.
    rest: visits that do not fill a batch; short, repeated, left_out: how the remainder policy treats them, as samples
    of the smaller batch, visits repeated, visits left out."""

    bucket: Size
    images: int
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
    """Entries of a kind ("latents", "text") that the run needs. present: how many exist; None if there are too many to
    look up. missing_bytes: still to be written."""

    kind: str
    entries: int
    bytes: int
    present: int | None
    missing_bytes: int


@dataclass(frozen=True, slots=True)
class Disk:
    """What the run writes. checkpoint, export: bytes of one. kept: checkpoints that are kept. there: checkpoints
    already in the run folder. exports: how many the run writes; None if wall time decides. free, free_cache: bytes at
    the run folder and at the cache folder; the same bytes if one_disk. cache: bytes still to be written."""

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
        """Bytes of all kept checkpoints, and of the one that is written before an old one is deleted."""
        return (self.kept + 1) * self.checkpoint

    @property
    def needed(self) -> int:
        """Bytes at the run folder for everything that the run writes and keeps."""
        exports = self.export * (1 if self.exports is None else self.exports)
        return max(0, self.kept + 1 - self.there) * self.checkpoint + exports + (self.cache if self.one_disk else 0)

    @property
    def least(self) -> int:
        """The least bytes at the run folder for two checkpoints: the second is written before the first is deleted."""
        return max(1, 2 - self.there) * self.checkpoint + (self.cache if self.one_disk else 0)


def bucket_rows(dataset: Dataset, recipe: Recipe) -> tuple[BucketRow, ...]:
    """The buckets with images, from tall to wide, as the first epoch uses them."""
    settings, columns, epoch = recipe.data, dataset.timeline.columns, dataset.timeline.epoch(0)
    table = buckets.table(settings)
    count = partial(np.bincount, minlength=len(table))
    visits = bucket_visits(columns, settings, seed=recipe.run.seed, epoch=0, buckets=len(table))
    images, batches = count(columns.bucket).tolist(), count(epoch.bucket).tolist()
    largest = np.zeros(len(table), dtype=np.int64)
    np.maximum.at(largest, epoch.bucket, np.diff(epoch.starts))
    rows = []
    for i in np.flatnonzero(images).tolist():
        total, rest, missing = (int(numbers[i]) for numbers in (visits.total, visits.rest, visits.missing))
        repeated = missing if settings.remainder in ("fill", "repeat") else 0
        short, left_out = (rest if settings.remainder == policy else 0 for policy in ("short", "drop"))
        rows.append(BucketRow(table[i], images[i], total, batches[i], int(largest[i]), rest, short, repeated, left_out))
    return tuple(rows)


def largest_batches(rows: Iterable[BucketRow]) -> dict[Size, int]:
    """The samples of the largest batch of each bucket that has one, over all processes."""
    return {row.bucket: row.largest for row in rows if row.batches}


def length(timeline: Timeline, steps: int) -> Length:
    """The run's length, given its steps."""
    epoch = timeline.epoch(0)
    return Length(epoch.num_batches, epoch.num_steps, steps, timeline.epochs_in(steps))


def times_due(intervals: Sequence[Every], length: Length | None) -> int | None:
    """How often something is due in a run, without its end; None if wall time decides, or the length is not known. A
    step that two intervals share counts once."""
    if length is None or any(every.unit == "minutes" for every in intervals):
        return None
    an_epoch = max(1, length.steps_an_epoch)
    gaps = {int(every.count) * (1 if every.unit == "steps" else an_epoch) for every in intervals}
    subsets = (subset for count in range(1, len(gaps) + 1) for subset in combinations(gaps, count))
    last = max(0, length.steps - 1)
    return sum((last // math.lcm(*subset)) * (1 if len(subset) % 2 else -1) for subset in subsets)  # each due step once


def cache_needs(
    recipe: Recipe, dataset: Dataset, caches: Caches, memory: Memory, extra_captions: Sequence[str]
) -> tuple[CacheNeed, ...]:
    """What the caches of the recipe will contain, including images that are only measured."""
    used = [(catalogue, rows) for catalogue, rows, _ in in_use(recipe, dataset)]
    needs = []
    if caches.latents is not None:
        latents = caches.latents
        parts = [part for catalogue, rows in used for part in _latents(recipe, latents, memory, catalogue, rows)]
        needs.append(_need("latents", parts))
    if caches.text is not None:
        row_bytes = bytes_of(memory.text_numbers, recipe.data.cache.dtype)
        addresses = np.concatenate(
            [text_entries(catalogue, rows, caches.text, extra_captions).addresses for catalogue, rows in used]
        )
        addresses = np.unique(addresses, axis=0)
        stored = caches.text.rows()
        present = 0 if stored is None else int(stored.has(addresses, checks=False).sum())
        needs.append(_need("text", [(len(addresses), present, row_bytes)]))
    return tuple(needs)


def _need(kind: str, parts: Sequence[tuple[int, int | None, int]]) -> CacheNeed:
    """parts: for entries of one size: how many, how many of them exist, bytes of one."""
    present = [existing for _, existing, _ in parts if existing is not None]
    return CacheNeed(
        kind,
        sum(count for count, _, _ in parts),
        sum(count * size for count, _, size in parts),
        sum(present) if len(present) == len(parts) else None,
        sum((count - (existing or 0)) * size for count, existing, size in parts),
    )


def _latents(
    recipe: Recipe, latents: LatentCache, memory: Memory, catalogue: Catalogue, rows: NDArray[np.int32]
) -> Iterator[tuple[int, int | None, int]]:
    if len(rows) * latents.views <= LOOKED_UP:
        for entries in latent_entries(catalogue, rows, recipe.data, latents):
            store = latents.store(entries.bucket, is_joined_image=entries.is_joined_image)
            present = 0 if store is None else int(store.has(entries.addresses, checks=False).sum())
            yield len(entries.addresses), present, _latent_bytes(recipe, memory, entries.bucket)
        return
    table = buckets.table(recipe.data)
    counts = np.bincount(catalogue.buckets_of(rows, recipe.data).bucket, minlength=len(table))
    for i in np.flatnonzero(counts).tolist():
        yield int(counts[i]) * latents.views, None, _latent_bytes(recipe, memory, table[i])


def _latent_bytes(recipe: Recipe, memory: Memory, bucket: Size) -> int:
    size = latent_size(bucket, memory.grid.pixels, memory.grid.frames)
    content = (2 if recipe.data.cache.content == "moments" else 1) + memory.animates
    numbers = content * memory.grid.channels * size.pixels * size.frames + memory.vision_numbers
    return bytes_of(numbers, recipe.data.cache.dtype)


def export_bytes(recipe: Recipe, memory: Memory, files: Sequence[Component]) -> int:
    """Bytes of one export: trained (or random) parts in the export's type, all others as stored; plus the single file
    next to the folder, in its type, or the file with only the trained parts."""
    export = recipe.run.export
    numbers = {part.name: part.parameters for part in memory.parts}
    of_folder = DTYPES[export.dtype].itemsize
    of_file = DTYPES[export.single_file_dtype or export.dtype].itemsize
    if recipe.model.has_adapter:
        return sum(part.trained for part in memory.parts) * of_folder * (2 if export.adapter in ("auto", "both") else 1)
    if recipe.model.train == (PART,):
        return 2 * sum(part.trained for part in memory.parts) * of_folder
    trained_file = sum(numbers[part] for part in recipe.model.train) * of_file
    if export.parts == "trained":
        return trained_file
    is_random = recipe.model.weights == "random"
    rewritten_parts = {name for name in numbers if is_random or name in recipe.model.train}
    rewritten = sum(numbers[name] for name in rewritten_parts) * of_folder
    size = sum(component.bytes for component in files if component.part not in rewritten_parts) + rewritten
    if export.trained_file is not None:
        size += trained_file
    if export.single_file and export.single_file_dtype is None:
        size += sum(c.bytes for c in files if c.part in numbers and c.part not in rewritten_parts) + rewritten
    elif export.single_file:
        size += sum(numbers.values()) * of_file
    return size


def disk(
    recipe: Recipe, folder: Path, memory: Memory, *,
    there: int, export: int, exports: int | None, saves: int | None, cache: int,
) -> Disk:  # fmt: skip
    """The free disk space and what the run writes. exports, saves: how often it does before its end, if known."""
    cache_folder = assemble.cache_folder(recipe)
    return Disk(
        folder=folder,
        cache_folder=cache_folder,
        checkpoint=memory.checkpoint,
        kept=recipe.run.save.keep or (there + 2 if saves is None else saves + 1) + recipe.run.save.best,
        there=there,
        export=export * (1 if recipe.optim.ema.rule == "none" else 2),
        exports=None if exports is None else exports + 1 + (recipe.run.export.folder is not None),
        cache=cache,
        free=durable.free_bytes(folder),
        free_cache=durable.free_bytes(cache_folder),
        one_disk=_find_existing_folder(folder).stat().st_dev == _find_existing_folder(cache_folder).stat().st_dev,
    )


def refuse_full_disk(disk: Disk) -> None:
    """Raises StorageError E1710 when two checkpoints do not fit, E1711 when the cache does not."""
    if disk.cache > disk.free_cache:
        raise StorageError(
            f"{disk.cache_folder}: the cache needs {disk.cache:,} bytes more and {disk.free_cache:,} are free; free "
            "disk space, set data.cache.path to another disk, or data.cache.dtype=fp16",
            code="E1711",
        )
    if disk.least > disk.free:
        with_cache = ", the cache on the same disk included," if disk.one_disk and disk.cache else ""
        raise StorageError(
            f"{disk.folder}: two checkpoints{with_cache} need {disk.least:,} bytes and {disk.free:,} are free; free "
            "disk space, or set run.folder to another disk",
            code="E1710",
        )


def _find_existing_folder(path: Path) -> Path:
    return next(folder for folder in (path, *path.absolute().parents) if folder.exists())
