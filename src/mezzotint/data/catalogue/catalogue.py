"""The catalogue: a data set as columns on disk, one row per sample. Between the formats and the plan.

`build` opens the index of a data set or creates it (`indexing.py`); a second start reads memory maps and no images. It
creates no Python objects per sample.
"""

from __future__ import annotations

import hashlib
import math
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mezzotint import draws
from mezzotint.data.buckets import buckets
from mezzotint.data.buckets.buckets import Placed
from mezzotint.data.catalogue import conditions, indexing
from mezzotint.data.catalogue._index_folders import HeldIndex, lock, newest_columns, prune
from mezzotint.data.catalogue._probing import Progress
from mezzotint.data.catalogue.conditions import PairedImages
from mezzotint.data.catalogue.data_report import DataReport, explain_no_samples, readable, report_of
from mezzotint.data.editing import journal
from mezzotint.data.files import columns, extracted, remote
from mezzotint.data.files.columns import DamagedColumns, Texts
from mezzotint.data.files.listing import is_remote
from mezzotint.data.files.memo import Memo
from mezzotint.data.files.overrides import SampleOverrides
from mezzotint.data.formats.base import Source
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.settings.base import with_values
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.sections import condition_sets
from mezzotint.settings.sections.clips import ClipsSettings
from mezzotint.settings.sections.data import DataSettings, ImageSet
from mezzotint.settings.sections.holdout import HoldoutSettings
from mezzotint.settings.sections.sets import SetSettings
from mezzotint.settings.sections.subjects import PriorSettings
from mezzotint.shapes import Size

ALWAYS_LET_PASS = 20
MANY = 50_000
"""Minimum number of samples for which reports and hashes are stored in the memo; for fewer they take 0.1 s."""
_MOST_READINGS = 4
"""How often a data set that is edited meanwhile is read again."""
_CHUNK = 1 << 16
"""Number of rows processed at once: intermediate results stay in the processor's cache."""
_NUMBERS = (
    "width", "height", "frames", "begin", "rate", "digest", "key_hash", "repeats", "weight", "conversions", "root",
    "set",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A data set. Arrays are read-only memory maps of n rows: width, height (int32, after EXIF rotation, of the
    region that is used), frames (int32, 1 for an image), begin, rate (float64, for a clip the time of its first frame
    in seconds and its frames per second, 0 for an image), digest ((n, 32) uint8, SHA-256 of the file, or the
    `Region.address` of an image with a crop or rotation), key_hash (uint64, `draws.text_key` of the key, which
    addresses every random draw of the loader), repeats, weight (float32), conversions (uint16,
    `media.Conversion`), root (uint16, index in `roots`; the number after the last is the folder of images extracted
    from other files, next to the index), set (uint16, index in `DataSettings.image_sets`). overrides: settings of
    single samples that replace the recipe's.

    fingerprint: a hash of keys, images, captions, repeats, weights and `overrides`, independent of the location.
    stills: the images that are joined to batches of these clips, or None. sizes: for the catalogue of such images, the
    sizes of the clips that they are joined to. sets: of `data.sets` and `data.prior.path`; () without them. conditions:
    the condition images by name (`data.conditions`).
    A catalogue is sent to other processes as its address.
    """

    folder: Path
    roots: tuple[Path, ...]
    width: NDArray[np.int32]
    height: NDArray[np.int32]
    frames: NDArray[np.int32]
    begin: NDArray[np.float64]
    rate: NDArray[np.float64]
    digest: NDArray[np.uint8]
    key_hash: NDArray[np.uint64]
    repeats: NDArray[np.float32]
    weight: NDArray[np.float32]
    conversions: NDArray[np.uint16]
    root: NDArray[np.uint16]
    set: NDArray[np.uint16]
    overrides: SampleOverrides
    fingerprint: str
    report: DataReport
    _stats: NDArray[np.int64]
    _keys: Texts
    _paths: Texts
    _captions: Texts
    _caption_starts: NDArray[np.int64]
    joined_images: Catalogue | None = None
    sizes: tuple[Size, ...] = ()
    sets: tuple[ImageSet, ...] = ()
    conditions: Mapping[str, PairedImages] = field(default_factory=dict)
    _held: HeldIndex | None = field(default=None, compare=False, repr=False)

    @classmethod
    def open(cls, folder: Path, roots: Sequence[Path]) -> Catalogue:
        """Reads an index and checks every byte; no process removes it as long as the catalogue exists. Raises
        `columns.DamagedColumns` or FileNotFoundError."""
        held = HeldIndex(folder)
        table, about = columns.read(folder)
        numbers: dict[str, Any] = {name: table[name] for name in _NUMBERS}
        return cls(
            folder,
            tuple(roots),
            **numbers,
            overrides=SampleOverrides.of(table),
            fingerprint=about["fingerprint"],
            report=report_of(table, about),
            _stats=table["stats"],
            _keys=Texts.in_table(table, "key"),
            _paths=Texts.in_table(table, "path"),
            _captions=Texts.in_table(table, "caption"),
            _caption_starts=table["caption_starts"],
            _held=held,
        )

    def __len__(self) -> int:
        return len(self.width)

    def __reduce__(self) -> tuple[Any, ...]:
        beside = self.joined_images, self.sizes, self.sets, dict(self.conditions)
        return (_reopen, (self.folder, self.roots, self.fingerprint, *beside))

    def settings_of(self, row: int, shared: DataSettings) -> DataSettings:
        """The settings of a row's set; without sets the shared ones."""
        return self.sets[int(self.set[row])].settings if self.sets else shared

    def key(self, row: int) -> str:
        """The key of a sample: its path relative to its folder, with slashes; with several folders prefixed by the
        folder's number."""
        return self._keys[row]

    def label(self, row: int) -> str:
        """The name of a sample in messages: its key, with several folders its folder's path instead of the number; on
        one line, without control characters."""
        key, number = self._keys[row], int(self.root[row])
        is_numbered = len(self.roots) > 1 and number < len(self.roots)
        return readable(f"{self.roots[number]}/{key.partition('/')[2]}" if is_numbered else key)

    @property
    def memo(self) -> Memo:
        """Stored results computed from this data set's indexes."""
        return Memo(self.folder.parent)

    def keys(self) -> Iterator[str]:
        """The keys of all samples, in order."""
        return iter(self._keys)

    def path(self, row: int) -> Path:
        """The path of a row's file. Does not check that it still exists."""
        number = int(self.root[row])
        root = self.roots[number] if number < len(self.roots) else self.folder.parent / indexing.IMAGES
        return root / self._paths[row]

    def local_path(self, row: int, *, keep_gb: float) -> Path:
        """A local path of a row's file: its own path, or for object storage that of a local copy, which is downloaded
        if needed. Raises DatasetError E1841, E1843; StorageError E1720."""
        path = self.path(row)
        if not is_remote(path):
            return path
        fetched = remote.fetched_at(self.folder.parent.parent / remote.FOLDER, int(keep_gb * 1e9))
        return fetched.fetch_content(path, self.digest[row].tobytes())

    def captions(self, row: int) -> tuple[str, ...]:
        """The captions from which a visit selects one."""
        return tuple(
            self._captions[i] for i in range(int(self._caption_starts[row]), int(self._caption_starts[row + 1]))
        )

    def captions_in_utf8(self, rows: NDArray[np.int32]) -> tuple[list[bytes], NDArray[np.int32]] | None:
        """All captions of the given rows in order, and the row of each; None if one is not UTF-8."""
        data = self._captions.blob.tobytes()
        try:
            data.decode("utf-8")
        except UnicodeDecodeError:
            return None
        counts = self.caption_counts()[rows]
        ends = np.cumsum(counts)
        numbers = np.arange(counts.sum()) + np.repeat(self._caption_starts[rows] - ends + counts, counts)
        first, last = self._captions.offsets[numbers].tolist(), self._captions.offsets[numbers + 1].tolist()
        return [data[i:j] for i, j in zip(first, last, strict=True)], np.repeat(rows, counts)

    def caption_checks(self, rows: NDArray[np.int32]) -> NDArray[np.uint64]:
        """A checksum of all captions of each row, above 0, (n,)."""
        data, offsets, starts = self._captions.blob.tobytes(), self._captions.offsets, self._caption_starts
        first, last = offsets[starts[rows]].tolist(), offsets[starts[rows + 1]].tolist()
        checks = list(map(zlib.crc32, map(data.__getitem__, map(slice, first, last))))
        counts = self.caption_counts()[rows].astype(np.uint64) + np.uint64(1)
        return np.asarray(counts << np.uint64(32) | np.array(checks, dtype=np.uint64))

    @property
    def num_captions(self) -> int:
        return len(self._captions)

    def caption_counts(self) -> NDArray[np.int64]:
        """The number of captions of each sample, (n,)."""
        return np.diff(self._caption_starts)

    def caption(self, number: int) -> str:
        """A caption by its number among all."""
        return self._captions[number]

    def with_empty_captions(self) -> NDArray[np.int64]:
        """The rows of samples that have an empty caption, ascending."""
        short = np.diff(self._captions.offsets) < 64
        candidates = np.flatnonzero(short) if self.report.empty_captions else np.zeros(0, np.int64)
        empty = np.asarray([i for i in candidates.tolist() if not self._captions[i].strip()], np.int64)
        return np.unique(np.searchsorted(self._caption_starts, empty, side="right") - 1)

    def rows_with(self, part: str) -> NDArray[np.int64]:
        """The rows of samples whose key or captions contain a text, ascending."""
        starts = self._caption_starts
        of_captions = np.searchsorted(starts, self._captions.containing(part), side="right") - 1
        return np.union1d(self._keys.containing(part), of_captions)

    def rows_in(self, folder: str) -> NDArray[np.int64]:
        """The rows of samples below a folder of keys, ascending."""
        return self._keys.beginning_with(f"{folder}/")

    def caption_words(self) -> NDArray[np.int64]:
        """Approximate number of words of each sample's first caption, (n,): its spaces plus one."""
        spaces = np.flatnonzero(self._captions.blob == ord(" "))
        first = np.minimum(self._caption_starts[:-1], max(0, len(self._captions) - 1))
        if not len(self._captions):
            return np.zeros(len(self), np.int64)
        begin, end = self._captions.offsets[first], self._captions.offsets[first + 1]
        counts = np.searchsorted(spaces, end) - np.searchsorted(spaces, begin) + (end > begin)
        return np.where(self.caption_counts() > 0, counts, 0)

    def long_captions(self, least: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows and numbers of captions of at least `least` bytes of UTF-8."""
        numbers = np.flatnonzero(np.diff(self._captions.offsets) >= least)
        return np.searchsorted(self._caption_starts, numbers, side="right") - 1, numbers

    def buckets_of(self, rows: ArrayLike, settings: DataSettings) -> Placed:
        """The buckets of each row; `Placed.sample` are indexes in `rows`."""
        chosen, parts = np.asarray(rows).astype(np.int64), []
        for start in range(0, max(len(chosen), 1), _CHUNK):
            part = self._buckets_of(chosen[start : start + _CHUNK], settings)
            parts.append(replace(part, sample=part.sample + start))
        names = ("sample", "bucket", "choice", "choices")
        return (
            parts[0]
            if len(parts) == 1
            else Placed(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))
        )

    def _buckets_of(self, chosen: NDArray[np.int64], settings: DataSettings) -> Placed:
        sets, most = self.set[chosen], None
        if settings.has_clips:
            starts = self.overrides.start[chosen]
            most = buckets.count_frames(self.frames[chosen], self.rate[chosen], starts, sets, settings)
        return buckets.place(self.width[chosen], self.height[chosen], sets, settings, most)

    def beside_fingerprint(self) -> tuple[NDArray[Any], ...]:
        """The columns that affect cache entries and are not part of the fingerprint."""
        return (self.width, self.height, self.frames, self.begin, self.rate, *self.overrides.embeddings)

    def is_as_indexed(self, row: int) -> bool:
        """Whether the file of a row has the size and times of the index; files on object storage are checked when they
        are read."""
        path = self.path(row)
        try:
            return is_remote(path) or decoding.stats_of(os.fspath(path)) == tuple(self._stats[row].tolist())
        except OSError:
            return False

    def has_its_images(self) -> bool:
        """Whether the images extracted from other files, which are in no listing, are unchanged."""
        rows = np.flatnonzero(self.root == len(self.roots)).tolist()
        return all(extracted.is_as_put(self.path(row), self._stats[row]) for row in rows)

    def verify(self, row: int) -> bool:
        """Whether the file still has the bytes that were indexed; reads it completely. For object storage, local copies
        never have other bytes."""
        if is_remote(self.path(row)):
            return True
        digest, region = decoding.digest_of(self.path(row)), self.overrides.region_of(row)
        return (digest if digest is None or region is None else region.address(digest)) == bytes(self.digest[row])

    def split(
        self, holdout: HoldoutSettings, seed: int, *, at_most: int | None = None
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The rows that are trained and those held out, int32, ascending. at_most: uses only this many samples, those
        with the smallest draws by (seed, key); None uses all. Class images are always trained, in addition.

        Each sample has a draw by (seed, key), and the smallest are held out: ⌈share · n⌉ of n, at most `max_samples`.
        With a share above 0 and at least two samples, at least one is held out and at least one trained.
        """
        class_rows = np.flatnonzero(self.overrides.prior).astype(np.int32)
        rows = np.delete(np.arange(len(self), dtype=np.int32), class_rows)
        if at_most is not None and at_most < len(rows):
            chance = draws.uniforms(draws.keys(seed, "subset", self.key_hash[rows]))
            rows = np.sort(rows[np.argsort(chance, kind="stable")[:at_most]])
        if holdout.fraction == 0 or len(rows) < 2:
            rows = np.sort(np.concatenate((rows, class_rows))) if len(class_rows) else rows
            return rows, np.zeros(0, dtype=np.int32)
        drawn = draws.uniforms(draws.keys(seed, "holdout", self.key_hash[rows]))
        count = math.ceil(Fraction(repr(holdout.fraction)) * len(drawn))  # the exact decimal value of the setting
        num = max(1, min(count, holdout.max_samples, len(rows) - 1))
        order = rows[np.argsort(drawn, kind="stable")]
        return np.sort(np.concatenate((order[num:], class_rows))), np.sort(order[:num])


def build(
    settings: DataSettings, folder: Path, *, workers: int | None = None, progress: Progress | None = None,
    condition: str = "",
) -> Catalogue:  # fmt: skip
    """The catalogue of the sets of a recipe, from its index in `folder`, which is created if there is no matching one.

    folder: of indexes (shared by runs and processes). workers: number of decoding threads; None for the number of
    processors. progress: called with (files done, files in total) while files are decoded; not called if no file needs
    decoding. condition: the name of the condition whose images in the data set are read instead of the samples.

    Raises DatasetError: E1201 a missing folder, E1202 nothing usable, E1203 and E1204 missing or contradictory
    captions, E1205 more than `settings.max_skipped` of the files cannot be used, E1265 a half-written edit that cannot
    be finished. StorageError if the index cannot be written.
    """
    catalogue = _read_between_edits(settings, folder, workers, progress, condition)
    if condition and not len(catalogue):
        raise DatasetError(conditions.explain_none(catalogue, settings, condition), code="E1294")
    _check(catalogue, settings)
    catalogue = replace(catalogue, sets=sets_of(settings))
    if condition:
        return catalogue
    catalogue = _with_stills(catalogue, settings, folder, workers, progress)
    if not settings.condition_names:
        return catalogue
    images = {}
    for name in settings.condition_names:
        section, own = condition_sets.images_settings(settings, name), condition_sets.is_in_data_set(settings, name)
        images[name] = build(section, folder, workers=workers, progress=progress, condition=name if own else "")
    return with_conditions(catalogue, images, settings)


def _read_between_edits(
    settings: DataSettings, folder: Path, workers: int | None, progress: Progress | None, condition: str
) -> Catalogue:
    """The index of a data set, read while nobody edits it: neither half of an edit, nor one before and one after.
    Raises DatasetError E1265 if an edit cannot be finished, or edits do not end."""
    paths = [one.settings.path for one in settings.image_sets()]
    edited = [path.resolve() for path in paths if path is not None and not is_remote(path)]
    marks = _settle_edits(edited)
    for _ in range(_MOST_READINGS):
        sources = indexing.sources_of(settings, condition)
        catalogue = _open_or_make(sources, settings, folder, workers, progress)
        below = (source.root / name for source in sources for name in source.folders)
        edited = list(dict.fromkeys((*edited, *below)))
        before, marks = marks, _settle_edits(edited)
        if marks == before:
            return catalogue
    raise DatasetError(
        f"{', '.join(map(str, catalogue.roots))}: captions are being edited and change while they are read; start "
        "again when that has ended",
        code="E1265",
    )


def _settle_edits(folders: Sequence[Path]) -> list[str]:
    return sorted({mark for folder in folders for mark in journal.settle(folder)})


def _open_or_make(
    sources: Sequence[Source], settings: DataSettings, folder: Path, workers: int | None, progress: Progress | None
) -> Catalogue:
    parent = folder.expanduser() / indexing.lineage(sources, settings)
    index = parent / indexing.address(sources, settings)
    roots = tuple(source.root for source in sources)
    catalogue = _open_valid(index, roots)
    if catalogue is None:
        with lock(parent):  # one process creates it, the others open it
            catalogue = _open_valid(index, roots)
            if catalogue is None:
                workers = workers or len(os.sched_getaffinity(0))
                before = newest_columns(parent, settings.verify)
                indexing.make(sources, settings, index, before=before, workers=workers, progress=progress)
                catalogue = Catalogue.open(index, roots)
                prune(parent, index)
    return catalogue


def with_conditions(catalogue: Catalogue, images: Mapping[str, Catalogue], settings: DataSettings) -> Catalogue:
    """Adds condition images. images: by name."""
    paired = {name: conditions.pair(catalogue, of_name, settings, name) for name, of_name in images.items()}
    fingerprint = conditions.fingerprint_with(catalogue.fingerprint, paired)
    return replace(catalogue, fingerprint=fingerprint, conditions=paired)


def _with_stills(
    catalogue: Catalogue, settings: DataSettings, folder: Path, workers: int | None, progress: Progress | None
) -> Catalogue:
    """Adds the catalogue of the images joined to video batches, if the recipe has a data set of them."""
    if settings.clips.images_from != "images":
        return catalogue
    joined_images = build(joined_images_settings(settings), folder, workers=workers, progress=progress)
    least = settings.clips.images + (1 if settings.clips.images_order == "groups" else 0)
    if len(joined_images) < least:
        raise DatasetError(
            f"{', '.join(map(str, joined_images.roots))}: {len(joined_images)} images, but data.clips.images="
            f"{settings.clips.images} with images_order={settings.clips.images_order} needs {least} or more; add "
            "images, or lower data.clips.images",
            code="E1291",
        )
    table = buckets.table(settings)
    used = [table[i] for i in np.unique(catalogue.buckets_of(np.arange(len(catalogue)), settings).bucket).tolist()]
    sizes = tuple(dict.fromkeys(Size(size.width, size.height) for size in used))
    fingerprint = hashlib.sha256(f"{catalogue.fingerprint} {joined_images.fingerprint}".encode("ascii")).hexdigest()
    return replace(catalogue, fingerprint=fingerprint, joined_images=replace(joined_images, sizes=sizes))


def joined_images_settings(settings: DataSettings) -> DataSettings:
    """The section for images joined to video batches: their paths and format, one frame each; the rest unchanged."""
    clips = settings.clips
    usual = format_spec(settings.format).joined_images_format
    sets = tuple(SetSettings(path=path) for path in clips.images_path)
    update = {"path": None, "sets": sets, "format": clips.images_format or usual, "repeats": 1.0}
    return with_values(settings, {**update, "clips": ClipsSettings(frames=1), "prior": PriorSettings()})


def _reopen(
    folder: Path, roots: Sequence[Path], fingerprint: str, joined_images: Catalogue | None, sizes: tuple[Size, ...],
    sets: tuple[ImageSet, ...], conditions: Mapping[str, PairedImages],
) -> Catalogue:  # fmt: skip
    opened = Catalogue.open(folder, roots)
    opened = replace(opened, joined_images=joined_images, sizes=sizes, sets=sets, conditions=conditions)
    return replace(opened, fingerprint=fingerprint)


def sets_of(settings: DataSettings) -> tuple[ImageSet, ...]:
    """`Catalogue.sets` of a recipe."""
    return settings.image_sets() if settings.sets or settings.prior.path else ()


def _open_valid(index: Path, roots: Sequence[Path]) -> Catalogue | None:
    try:
        catalogue = Catalogue.open(index, roots)
    except (FileNotFoundError, DamagedColumns):  # a damaged index is created again in its place
        return None
    return catalogue if catalogue.has_its_images() else None


def _check(catalogue: Catalogue, settings: DataSettings) -> None:
    report = catalogue.report
    where = ", ".join(map(str, catalogue.roots))
    listed = "; ".join(f"{readable(path)} ({readable(reason)})" for path, reason in report.skipped[:10])
    if not len(catalogue):
        raise DatasetError(f"{where}: {explain_no_samples(report, listed)}", code="E1202")
    is_class = catalogue.overrides.prior != 0
    if settings.has_class_images and (is_class.all() or not is_class.any()):
        empty, other = ("other", "class") if is_class.any() else ("class", "other")
        raise DatasetError(
            f"{where}: there is no usable {empty} image, only {len(catalogue)} {other} images; add images, or remove "
            "data.prior and class_images in data.sets",
            code="E1453",
        )
    num, files = len(report.skipped), len(catalogue) + len(report.skipped)
    if num > max(ALWAYS_LET_PASS, settings.max_skipped * files):
        raise DatasetError(
            f"{where}: {num} of {files} files cannot be used, more than data.max_skipped={settings.max_skipped:g} "
            f"allows: {listed}{' and others' if num > 10 else ''}; repair or remove them, or raise data.max_skipped",
            code="E1205",
        )
    if settings.cache.text and settings.cache.shuffles == 1 and catalogue.overrides.shuffle_tags.any():
        raise DatasetError(
            f"{where}: tags of {int(catalogue.overrides.shuffle_tags.sum())} images are shuffled, but data.cache.text "
            "stores data.cache.shuffles=1 order of each caption; set data.cache.shuffles above 1, or "
            "data.cache.text=false",
            code="E1218",
        )
