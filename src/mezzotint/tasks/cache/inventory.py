"""Determines which cache entries a data set needs, which of them are absent, and why, from a ledger of the last
filling.

The ledger (one array for each data set, in the cache's memo) is advisory. It never decides what is encoded, only how
that is explained: `2 images changed, 1 caption changed`.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.buckets import buckets
from mezzotint.data.cache.entries import Caches, LatentCache, TextCache
from mezzotint.data.cache.store import Store
from mezzotint.data.cache.text_rows import TextRows
from mezzotint.data.catalogue.catalogue import Catalogue, joined_images_settings
from mezzotint.data.files.memo import Memo
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.tasks.assemble import Dataset

_LEDGER = np.dtype([(name, "<u8") for name in ("key", "image", "media", "placed", "kept", "captions", "text")])
_MAX_LEDGERS = 64  # ledgers in one memo


@dataclass(frozen=True, slots=True)
class LatentEntries:
    """Entries of one bucket: addresses (n, 32), and the row and view that need each. stills: (n,), −1 for an image or
    clip itself, else the frame of it that is stored as an image; `clip` is the size of its clip. is_still: whether
    these are images that are batched with clips."""

    bucket: Size
    addresses: NDArray[np.uint8]
    rows: NDArray[np.int32]
    views: NDArray[np.int16]
    joined_images: NDArray[np.int16]
    clip: Size
    is_joined_image: bool = False


@dataclass(frozen=True, slots=True)
class TextEntries:
    """Captions, each once, with their addresses (n, 32) and the first row that needs each, −1 for none. marks: the file
    with each one's embedding by another trainer (`overrides.Marked.encoded`), empty for captions to encode.
    with_images: (n,), which are encoded with the condition images of their row; a caption is then there once for each
    of its images."""

    captions: tuple[str, ...]
    addresses: NDArray[np.uint8]
    rows: NDArray[np.int32]
    marks: tuple[str, ...]
    with_images: NDArray[np.bool_]


Entries = TypeVar("Entries", LatentEntries, TextEntries)


def in_use(recipe: Recipe, dataset: Dataset) -> Iterator[tuple[Catalogue, NDArray[np.int32], DataSettings]]:
    """Every catalogue with its rows that the run uses, for training or validation: what a cache must contain."""
    rows = np.sort(np.concatenate((dataset.rows, dataset.held)))
    used = [(dataset.catalogue, rows, recipe.data)]
    used += [(data_set.catalogue, data_set.rows, data_set.settings) for data_set in dataset.sets.values()]
    for catalogue, rows_of_set, settings in used:
        yield catalogue, rows_of_set, settings
        if catalogue.joined_images is not None:
            yield (
                catalogue.joined_images,
                np.arange(len(catalogue.joined_images), dtype=np.int32),
                joined_images_settings(settings),
            )


def latent_entries(
    catalogue: Catalogue, rows: NDArray[np.int32], settings: DataSettings, latents: LatentCache
) -> tuple[LatentEntries, ...]:
    """All placements of all rows, by bucket; images of equal content and placement share an entry. For clips also the
    frames that are trained as images; for images that are batched with clips, each in every clip size."""
    if catalogue.sizes:
        return tuple(_of_bucket(catalogue, rows, latents, size, is_joined_image=True) for size in catalogue.sizes)
    table, placed = buckets.table(settings), catalogue.buckets_of(rows, settings)
    groups = []
    for number in np.unique(placed.bucket).tolist():
        in_bucket = rows[placed.sample[placed.bucket == number]]
        groups.append(_of_bucket(catalogue, in_bucket, latents, table[number]))
        if settings.clips.images_from == "clips":
            groups.append(_frames_of_bucket(catalogue, in_bucket, latents, table[number], settings.clips.images))
    return tuple(groups)


def _of_bucket(
    catalogue: Catalogue, rows: NDArray[np.int32], latents: LatentCache, bucket: Size, *, is_joined_image: bool = False
) -> LatentEntries:
    of_views = [latents.addresses(catalogue, rows, bucket, view) for view in range(latents.views)]
    addresses = [address for of_row in zip(*of_views, strict=True) for address in of_row]
    first = _first_positions(addresses)
    number = np.fromiter(first.values(), np.int64, len(first))
    views, joined_images = (number % latents.views).astype(np.int16), np.full(len(first), -1, np.int16)
    return LatentEntries(
        bucket, _as_array(first), rows[number // latents.views], views, joined_images, bucket, is_joined_image
    )


def _first_positions(values: Sequence[bytes]) -> dict[bytes, int]:
    """Each value once, in order, with its first position."""
    first: dict[bytes, int] = dict.fromkeys(values, -1)
    if len(first) == len(values):
        return dict(zip(values, range(len(values)), strict=True))
    for position, value in enumerate(values):
        if first[value] < 0:
            first[value] = position
    return first


def _frames_of_bucket(
    catalogue: Catalogue, rows: NDArray[np.int32], latents: LatentCache, clip: Size, num: int
) -> LatentEntries:
    owners: dict[bytes, tuple[int, int, int]] = {}
    for row, view in product(rows.tolist(), range(latents.views)):
        placed = latents.placement(catalogue, row, view, clip)
        for still in range(num):
            owners.setdefault(latents.address(catalogue, row, placed, view, still=still), (row, view, still))
    entries = np.array(list(owners.values()), dtype=np.int32).reshape(-1, 3)
    views, joined_images = entries[:, 1].astype(np.int16), entries[:, 2].astype(np.int16)
    bucket = Size(clip.width, clip.height)
    return LatentEntries(bucket, _as_array(owners), entries[:, 0], views, joined_images, clip, is_joined_image=True)


def text_entries(
    catalogue: Catalogue, rows: NDArray[np.int32], text: TextCache, extra: Sequence[str], part: tuple[int, int] = (0, 1)
) -> TextEntries:
    """Every caption that these rows can choose, the empty one, and `extra`. Where rows have embedding files, the empty
    caption is included only if captions are dropped; imported embeddings never are. part: the rank and number of
    processes, which share the captions."""
    always = _always_needed(catalogue, rows, text, extra)
    is_plain = not catalogue.overrides.embeddings and text.images is None
    as_written = text.captions_as_written(catalogue, rows) if is_plain else None
    if as_written is None:
        return _by_row(catalogue, rows, text, always, part)
    return _as_written(*as_written, text, always, part)


def _always_needed(
    catalogue: Catalogue, rows: NDArray[np.int32], text: TextCache, extra: Sequence[str]
) -> Sequence[str]:
    """`extra`, and the empty caption if it may be needed."""
    overrides = catalogue.overrides
    of_files = overrides.embeddings and any(overrides.embedding_of(row) for row in rows.tolist())
    return extra if text.is_imported or (of_files and not text.drops) else ("", *extra)


def _by_row(
    catalogue: Catalogue, rows: NDArray[np.int32], text: TextCache, always: Sequence[str], part: tuple[int, int]
) -> TextEntries:
    """Every caption that a visit of a row can have, its embedding file, and its images."""
    row_of: dict[tuple[str, str, bytes], int] = dict.fromkeys(((caption, "", b"") for caption in always), -1)
    for row in rows.tolist():
        mark = catalogue.overrides.embedding_of(row)
        for caption, images in text.texts_of(catalogue, row):
            row_of.setdefault((caption, mark if caption or not text.drops else "", images), row)
    keys = [key for key in row_of if _is_in_part(part, "".join(key[:2]).encode("utf-8", "surrogatepass") + key[2])]
    addresses = _as_array(text.address(*key) for key in keys)
    captions, marks = tuple(caption for caption, _, _ in keys), tuple(mark for _, mark, _ in keys)
    with_images = np.array([bool(images) for _, _, images in keys], dtype=np.bool_)
    return TextEntries(captions, addresses, np.array([row_of[key] for key in keys], dtype=np.int32), marks, with_images)


def _as_written(
    texts: Sequence[bytes], of_rows: NDArray[np.int32], text: TextCache, always: Sequence[str], part: tuple[int, int]
) -> TextEntries:
    """As `_by_row`, where captions are used exactly as in their files: `texts`, in UTF-8, of the rows `of_rows`."""
    first = _first_positions([*(caption.encode("utf-8", "surrogatepass") for caption in always), *texts])
    owners = np.concatenate((np.full(len(always), -1, np.int32), of_rows))
    chosen = (
        {caption: position for caption, position in first.items() if _is_in_part(part, caption)}
        if part[1] > 1
        else first
    )
    positions = np.fromiter(chosen.values(), np.int64, len(chosen))
    captions = tuple(caption.decode("utf-8", "surrogatepass") for caption in chosen)
    addresses, without = _as_array(map(text.address_of, chosen)), np.zeros(len(chosen), dtype=np.bool_)
    return TextEntries(captions, addresses, owners[positions], ("",) * len(chosen), without)


def _is_in_part(part: tuple[int, int], caption: bytes) -> bool:
    return part[1] == 1 or zlib.crc32(caption) % part[1] == part[0]


@dataclass(frozen=True, slots=True)
class Lookup(Generic[Entries]):
    """The needed entries of one bucket, or of all captions, and which of them are absent or damaged, each (n,).
    is_checked: whether entries were read, and not only looked up."""

    needed: Entries
    absent: NDArray[np.bool_]
    damaged: NDArray[np.bool_]
    is_checked: bool

    @classmethod
    def at(cls, needed: Entries, rows: Store | TextRows | None, *, checks: bool) -> Lookup[Entries]:
        """Looks up entries in a store or the rows of texts; None for one that does not exist yet."""
        damaged = np.zeros(len(needed.addresses), dtype=np.bool_)
        if rows is None:
            return cls(needed, ~damaged, damaged, True)
        absent = ~rows.has(needed.addresses, checks=checks)
        damaged[absent] = rows.is_damaged(needed.addresses[absent])
        return cls(needed, absent, damaged, checks)


@dataclass(frozen=True, slots=True)
class Lookups:
    """The lookups of one process: images by bucket, and captions, None without a text cache."""

    images: tuple[Lookup[LatentEntries], ...]
    captions: Lookup[TextEntries] | None

    @property
    def absent(self) -> list[NDArray[np.bool_]]:
        """For each lookup, which entries are absent."""
        return [lookup.absent for lookup in self.images] + ([self.captions.absent] if self.captions is not None else [])

    @property
    def is_checked(self) -> bool:
        """Whether all entries were read, and not only looked up."""
        return all(lookup.is_checked for lookup in self.images) and (self.captions is None or self.captions.is_checked)


def look_up(
    catalogue: Catalogue, rows: NDArray[np.int32], settings: DataSettings, caches: Caches, extra: Sequence[str], *,
    part: tuple[int, int], verify_bytes: int | None,
) -> Lookups:  # fmt: skip
    """Looks up the entries that rows and `extra` captions need. part: the rank and number of processes. verify_bytes:
    entries are read and verified if those of all processes have at most this many bytes; None always reads them."""

    def checks(row_bytes: int) -> bool:
        return verify_bytes is None or row_bytes * part[1] <= verify_bytes

    images: tuple[Lookup[LatentEntries], ...] = ()
    if caches.latents is not None:
        rows_of_part = rows[images_of_process(catalogue.digest[rows], *part)]
        needed = latent_entries(catalogue, rows_of_part, settings, caches.latents)
        pairs = [
            (entries, caches.latents.store(entries.bucket, is_joined_image=entries.is_joined_image))
            for entries in needed
        ]
        all_bytes = sum(len(entries.rows) * store.row_bytes for entries, store in pairs if store)
        images = tuple(Lookup.at(entries, store, checks=checks(all_bytes)) for entries, store in pairs)
    if caches.text is None:
        return Lookups(images, None)
    captions, stored = text_entries(catalogue, rows, caches.text, extra, part), caches.text.rows()
    all_bytes = len(captions.rows) * stored.row_bytes if stored is not None else 0
    return Lookups(images, Lookup.at(captions, stored, checks=checks(all_bytes)))


class Ledger:
    """The state of each sample at the last filling: 64-bit hashes of its image, captions and of the identities."""

    def __init__(self, folder: Path, settings: DataSettings) -> None:
        self._memo = Memo(folder)
        self._key = (_LEDGER.descr, [str(path.absolute()) for path in settings.paths])
        lines = self._memo.get("ledger", self._key) or b""
        self._old = np.frombuffer(lines[: len(lines) - len(lines) % _LEDGER.itemsize], _LEDGER)

    def lines(
        self,
        catalogue: Catalogue,
        rows: NDArray[np.int32],
        settings: DataSettings,
        *,
        latents: LatentCache | None,
        text: TextCache | None,
    ) -> NDArray[Any]:
        """The ledger's lines for the current state of `rows`, in their order. Fields of a cache that is None keep their
        old values."""
        lines = np.zeros(len(rows), dtype=_LEDGER)
        lines["key"] = catalogue.key_hash[rows]
        rows_in_old, is_known = self._find(lines["key"])
        lines[is_known] = self._old[rows_in_old[is_known]]
        if latents is not None:
            identity = json.loads(latents.identity)
            lines["image"] = np.ascontiguousarray(catalogue.digest[rows][:, :8]).view("<u8")[:, 0]
            lines["media"] = _hash(identity["media"], identity["compute"])
            lines["placed"] = _hash(*_placement_values(settings), identity["preprocessing"], latents.seeds[0])
            encoding = [identity["encoding"]] if "encoding" in identity else []
            lines["kept"] = _hash(identity["content"], identity["dtype"], latents.seeds[1], *encoding)
        if text is not None:
            lines["captions"] = catalogue.caption_checks(rows)
            if text.images is not None:
                lines["captions"] ^= np.array(
                    [_hash(text.images_of(catalogue, row)) for row in rows.tolist()], np.uint64
                )
            lines["text"] = _hash(text.identity)
        return lines

    def images(self, lines: NDArray[Any]) -> list[str]:
        """Why latents of these samples are absent: "new", "changed", … one phrase each."""
        reasons = [("image", "changed"), ("media", "VAE changed"), ("placed", "placement changed"),
                   ("kept", "cache settings changed")]  # fmt: skip
        return self._find_reasons(lines, "media", reasons)

    def captions(self, lines: NDArray[Any]) -> list[str]:
        """Why embeddings of captions are absent. lines: of their samples."""
        return self._find_reasons(lines, "text", [("captions", "changed"), ("text", "text encoder changed")])

    def caption_of_none(self, text: TextCache, caption: str) -> str:
        """Why the embedding of a caption without a sample is absent."""
        if not self._old["text"].any():
            return "new"
        if _hash(text.identity) not in self._old["text"]:
            return "text encoder changed"
        return "entry gone" if caption == "" else "new"

    def write(self, lines: NDArray[Any]) -> None:
        """Stores these lines, and keeps those of other samples. In a read-only folder nothing changes."""
        rows_in_old, is_known = self._find(lines["key"])
        if is_known.all() and (self._old[rows_in_old] == lines).all():
            return
        is_other = np.ones(len(self._old), dtype=np.bool_)
        is_other[rows_in_old[is_known]] = False
        merged = np.concatenate([self._old[is_other], lines])
        merged = merged[np.argsort(merged["key"], kind="stable")]
        self._memo.put("ledger", self._key, merged.tobytes(), keep=_MAX_LEDGERS)

    def _find_reasons(self, lines: NDArray[Any], known_by: str, reasons: Sequence[tuple[str, str]]) -> list[str]:
        rows_in_old, is_known = self._find(lines["key"])
        old = self._old[rows_in_old] if len(self._old) else np.zeros(len(lines), dtype=_LEDGER)
        is_known &= old[known_by] != 0
        found_reasons = np.full(len(lines), "entry gone", dtype=object)
        for name, reason in reversed(reasons):
            found_reasons[old[name] != lines[name]] = reason
        found_reasons[~is_known] = "new"
        return [str(reason) for reason in found_reasons]

    def _find(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        in_order, rows_in_old = np.argsort(keys), np.empty(len(keys), dtype=np.int64)
        rows_in_old[in_order] = np.minimum(
            np.searchsorted(self._old["key"], keys[in_order]), max(len(self._old) - 1, 0)
        )
        is_known = self._old["key"][rows_in_old] == keys if len(self._old) else np.zeros(len(keys), dtype=np.bool_)
        return rows_in_old, is_known


def reasons(
    catalogue: Catalogue, settings: DataSettings, ledger: Ledger, caches: Caches, lookups: Lookups
) -> tuple[Counter[str], Counter[str]]:
    """The number of absent images and captions for each reason."""

    def lines(rows: NDArray[np.int32]) -> NDArray[Any]:
        return ledger.lines(catalogue, rows, settings, latents=caches.latents, text=caches.text)

    of_images: dict[int, str] = {}
    for lookup in lookups.images:
        absent = np.flatnonzero(lookup.absent)
        phrases = ledger.images(lines(lookup.needed.rows[absent]))
        for i, reason in zip(absent.tolist(), phrases, strict=True):
            of_images.setdefault(int(lookup.needed.rows[i]), "entry damaged" if lookup.damaged[i] else reason)
    of_captions: Counter[str] = Counter()
    captions = lookups.captions
    if captions is not None and caches.text is not None:
        absent = np.flatnonzero(captions.absent)
        of_rows = captions.needed.rows[absent]
        phrases = ledger.captions(lines(of_rows))  # the line of row −1 is not used
        for i, row, reason in zip(absent.tolist(), of_rows.tolist(), phrases, strict=True):
            of_none = ledger.caption_of_none(caches.text, captions.needed.captions[i]) if row < 0 else reason
            of_captions["entry damaged" if captions.damaged[i] else of_none] += 1
    return Counter(of_images.values()), of_captions


def describe(noun: str, reasons: Iterable[str] | Mapping[str, int]) -> tuple[str, ...]:
    """`("2 images changed", "1 image (VAE changed)")` from ("changed", "changed", "VAE changed"), the most frequent
    first."""
    counts = Counter(reasons).most_common()
    phrases = [(n, reason if reason in ("new", "changed") else f"({reason})") for reason, n in counts]
    return tuple(f"{n} {noun}{'s' if n > 1 else ''} {reason}" for n, reason in phrases)


def _placement_values(settings: DataSettings) -> tuple[object, ...]:
    of_sets = [(one.resolution, one.buckets.model_dump_json(), one.crop, one.jitter, one.flip)
               for one in (one.settings for one in settings.image_sets())]  # fmt: skip
    of_clips = [one.settings.clips.model_dump_json() for one in settings.image_sets() if settings.has_clips]
    return (of_sets, settings.resize, settings.antialias, settings.background, settings.cache.crops, *of_clips)


def _hash(*values: object) -> int:
    text = json.dumps([str(value) for value in values])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") or 1


def _as_array(addresses: Iterable[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(addresses), dtype=np.uint8).reshape(-1, 32)


def images_of_process(digests: NDArray[np.uint8], rank: int, world_size: int) -> NDArray[np.bool_]:
    """Which images a process looks up and encodes, (n,). digests: (n, 32). The division by content needs no
    communication, and equal images belong to the same process."""
    numbers = np.ascontiguousarray(digests[:, 24:]).view("<u8")[:, 0]
    return np.asarray(numbers % np.uint64(world_size) == rank, dtype=np.bool_)
