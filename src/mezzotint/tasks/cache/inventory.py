"""Which cache entries a data set needs, which of them are absent, and why: worked out from a ledger of what the last
filling saw.

The ledger (one array for each data set, in the cache's memo) is advisory. It never decides what is encoded, only how
that is explained: `2 pictures changed, 1 caption changed`.
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
from mezzotint.data.catalogue.catalogue import Catalogue, stills_settings
from mezzotint.data.files.memo import Memo
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.tasks.assemble import Dataset

_LEDGER = np.dtype([(name, "<u8") for name in ("key", "picture", "media", "placed", "kept", "captions", "text")])
_KEPT = 64  # ledgers in one memo


@dataclass(frozen=True, slots=True)
class LatentEntries:
    """Entries of one bucket: addresses (n, 32), and the row and view that want each. stills: (n,) −1 for a picture
    or clip itself, else which of its frames is kept as a picture; its clip lies in `clip`. is_still: whether these are
    pictures beside clips."""

    bucket: Size
    addresses: NDArray[np.uint8]
    rows: NDArray[np.int32]
    views: NDArray[np.int16]
    stills: NDArray[np.int16]
    clip: Size
    is_still: bool = False


@dataclass(frozen=True, slots=True)
class TextEntries:
    """Captions, each once, with their addresses (n, 32) and the first row that wants each, −1 for none. marks: the file
    in which another trainer keeps each one's embedding (`overrides.Marked.encoded`), empty for what is encoded."""

    captions: tuple[str, ...]
    addresses: NDArray[np.uint8]
    rows: NDArray[np.int32]
    marks: tuple[str, ...]


Entries = TypeVar("Entries", LatentEntries, TextEntries)


def in_use(recipe: Recipe, dataset: Dataset) -> Iterator[tuple[Catalogue, NDArray[np.int32], DataSettings]]:
    """Every catalogue with the rows of it that the run sees, trained or measured: what a cache has to hold."""
    rows = np.sort(np.concatenate((dataset.rows, dataset.held)))
    own = [(dataset.catalogue, rows, recipe.data)]
    for catalogue, of_set, settings in own + [(one.catalogue, one.rows, one.settings) for one in dataset.sets.values()]:
        yield catalogue, of_set, settings
        if catalogue.stills is not None:
            yield catalogue.stills, np.arange(len(catalogue.stills), dtype=np.int32), stills_settings(settings)


def latent_entries(
    catalogue: Catalogue, rows: NDArray[np.int32], settings: DataSettings, latents: LatentCache
) -> tuple[LatentEntries, ...]:
    """All placements of all rows, by bucket; pictures of equal content and placement share an entry. Of clips also the
    frames that are trained as pictures; of pictures beside clips, each in every size of clip."""
    if catalogue.sizes:
        return tuple(_of_bucket(catalogue, rows, latents, size, is_still=True) for size in catalogue.sizes)
    table = buckets.table(settings)
    of_bucket = catalogue.buckets_of(rows, settings)
    groups = []
    for number in np.unique(of_bucket).tolist():
        here = rows[of_bucket == number]
        groups.append(_of_bucket(catalogue, here, latents, table[number]))
        if settings.clips.images_from == "clips":
            groups.append(_frames_of_bucket(catalogue, here, latents, table[number], settings.clips.images))
    return tuple(groups)


def _of_bucket(
    catalogue: Catalogue, rows: NDArray[np.int32], latents: LatentCache, bucket: Size, *, is_still: bool = False
) -> LatentEntries:
    of_views = [latents.addresses(catalogue, rows, bucket, view) for view in range(latents.views)]
    addresses = [address for of_row in zip(*of_views, strict=True) for address in of_row]
    first = _firsts(addresses)
    number = np.fromiter(first.values(), np.int64, len(first))
    views, stills = (number % latents.views).astype(np.int16), np.full(len(first), -1, np.int16)
    return LatentEntries(bucket, _as_array(first), rows[number // latents.views], views, stills, bucket, is_still)


def _firsts(values: Sequence[bytes]) -> dict[bytes, int]:
    """Each value once, in order, with the place where it comes first."""
    first: dict[bytes, int] = dict.fromkeys(values, -1)
    if len(first) == len(values):
        return dict(zip(values, range(len(values)), strict=True))
    for place, value in enumerate(values):
        if first[value] < 0:
            first[value] = place
    return first


def _frames_of_bucket(
    catalogue: Catalogue, rows: NDArray[np.int32], latents: LatentCache, clip: Size, num: int
) -> LatentEntries:
    owners: dict[bytes, tuple[int, int, int]] = {}
    for row, view in product(rows.tolist(), range(latents.views)):
        placed = latents.placement(catalogue, row, view, clip)
        for still in range(num):
            owners.setdefault(latents.address(catalogue, row, placed, view, still=still), (row, view, still))
    places = np.array(list(owners.values()), dtype=np.int32).reshape(-1, 3)
    views, stills = places[:, 1].astype(np.int16), places[:, 2].astype(np.int16)
    bucket = Size(clip.width, clip.height)
    return LatentEntries(bucket, _as_array(owners), places[:, 0], views, stills, clip, is_still=True)


def text_entries(
    catalogue: Catalogue, rows: NDArray[np.int32], text: TextCache, extra: Sequence[str], part: tuple[int, int] = (0, 1)
) -> TextEntries:
    """Every caption that these rows can choose, the empty one, and `extra`. Where rows have files of embeddings, the
    empty caption only if captions are dropped; of embeddings that are taken over, which never are, without it. part:
    a process and how many there are, each of which has its own of the captions."""
    always = _always_needed(catalogue, rows, text, extra)
    as_written = None if catalogue.overrides.embeddings else text.captions_as_written(catalogue, rows)
    if as_written is None:
        return _by_row(catalogue, rows, text, always, part)
    return _as_written(*as_written, text, always, part)


def _always_needed(
    catalogue: Catalogue, rows: NDArray[np.int32], text: TextCache, extra: Sequence[str]
) -> Sequence[str]:
    """`extra`, and the empty caption where it may be asked for."""
    own = catalogue.overrides
    of_files = own.embeddings and any(own.embedding_of(row) for row in rows.tolist())
    return extra if text.is_imported or (of_files and not text.drops) else ("", *extra)


def _by_row(
    catalogue: Catalogue, rows: NDArray[np.int32], text: TextCache, always: Sequence[str], part: tuple[int, int]
) -> TextEntries:
    """Every caption that a visit of a row can have, and its file of an embedding."""
    row_of: dict[tuple[str, str], int] = dict.fromkeys(((caption, "") for caption in always), -1)
    for row in rows.tolist():
        mark = catalogue.overrides.embedding_of(row)
        for caption in text.captions_of(catalogue, row):
            row_of.setdefault((caption, mark if caption or not text.drops else ""), row)
    mine = [key for key in row_of if _falls_to(part, "".join(key).encode("utf-8", "surrogatepass"))]
    addresses = _as_array(text.address(caption, mark) for caption, mark in mine)
    captions, marks = tuple(caption for caption, _ in mine), tuple(mark for _, mark in mine)
    return TextEntries(captions, addresses, np.array([row_of[key] for key in mine], dtype=np.int32), marks)


def _as_written(
    texts: Sequence[bytes], of_rows: NDArray[np.int32], text: TextCache, always: Sequence[str], part: tuple[int, int]
) -> TextEntries:
    """The same where captions are chosen whole, as their files have them: `texts`, in UTF-8, of the rows `of_rows`."""
    first = _firsts([*(caption.encode("utf-8", "surrogatepass") for caption in always), *texts])
    owners = np.concatenate((np.full(len(always), -1, np.int32), of_rows))
    mine = {caption: place for caption, place in first.items() if _falls_to(part, caption)} if part[1] > 1 else first
    places = np.fromiter(mine.values(), np.int64, len(mine))
    captions = tuple(caption.decode("utf-8", "surrogatepass") for caption in mine)
    return TextEntries(captions, _as_array(map(text.address_of, mine)), owners[places], ("",) * len(mine))


def _falls_to(part: tuple[int, int], caption: bytes) -> bool:
    return part[1] == 1 or zlib.crc32(caption) % part[1] == part[0]


@dataclass(frozen=True, slots=True)
class Lookup(Generic[Entries]):
    """What is needed in one bucket, or of all captions, and which of it is absent or damaged, each (n,). is_checked:
    whether entries were read, and not only looked for."""

    needed: Entries
    absent: NDArray[np.bool_]
    damaged: NDArray[np.bool_]
    is_checked: bool

    @classmethod
    def at(cls, needed: Entries, rows: Store | TextRows | None, *, checks: bool) -> Lookup[Entries]:
        """In a store, or in the rows of texts; None has nothing yet."""
        damaged = np.zeros(len(needed.addresses), dtype=np.bool_)
        if rows is None:
            return cls(needed, ~damaged, damaged, True)
        absent = ~rows.has(needed.addresses, checks=checks)
        damaged[absent] = rows.damaged(needed.addresses[absent])
        return cls(needed, absent, damaged, checks)


@dataclass(frozen=True, slots=True)
class Lookups:
    """Of a process's part: of the pictures, by bucket, and of the captions, None without a cache of text."""

    pictures: tuple[Lookup[LatentEntries], ...]
    captions: Lookup[TextEntries] | None

    @property
    def absent(self) -> list[NDArray[np.bool_]]:
        """Of every store, entry by entry."""
        return [one.absent for one in self.pictures] + ([self.captions.absent] if self.captions is not None else [])

    @property
    def is_checked(self) -> bool:
        """Whether all entries were read, and not only looked for."""
        return all(one.is_checked for one in self.pictures) and (self.captions is None or self.captions.is_checked)


def look_up(
    catalogue: Catalogue, rows: NDArray[np.int32], settings: DataSettings, caches: Caches, extra: Sequence[str], *,
    part: tuple[int, int], verify_bytes: int | None,
) -> Lookups:  # fmt: skip
    """What caches need of rows, and of `extra` captions, and what they lack of it. part: a process and how many there
    are. verify_bytes: entries are read when those of all processes are no more bytes than this; None reads any
    number."""

    def checks(row_bytes: int) -> bool:
        return verify_bytes is None or row_bytes * part[1] <= verify_bytes

    pictures: tuple[Lookup[LatentEntries], ...] = ()
    if caches.latents is not None:
        mine = rows[share(catalogue.digest[rows], *part)]
        needed = latent_entries(catalogue, mine, settings, caches.latents)
        pairs = [(one, caches.latents.store(one.bucket, is_still=one.is_still)) for one in needed]
        all_bytes = sum(len(one.rows) * store.row_bytes for one, store in pairs if store)
        pictures = tuple(Lookup.at(one, store, checks=checks(all_bytes)) for one, store in pairs)
    if caches.text is None:
        return Lookups(pictures, None)
    captions, stored = text_entries(catalogue, rows, caches.text, extra, part), caches.text.rows()
    all_bytes = len(captions.rows) * stored.row_bytes if stored is not None else 0
    return Lookups(pictures, Lookup.at(captions, stored, checks=checks(all_bytes)))


class Ledger:
    """What the last filling saw of each sample: 64-bit hashes of its picture, captions and of the identities."""

    def __init__(self, folder: Path, settings: DataSettings) -> None:
        self._memo = Memo(folder)
        self._key = (_LEDGER.descr, [str(path.absolute()) for path in settings.path])
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
        """The ledger's lines for rows as they are now, in order of `rows`. Without one of the caches its old fields
        stay."""
        lines = np.zeros(len(rows), dtype=_LEDGER)
        lines["key"] = catalogue.key_hash[rows]
        at, known = self._find(lines["key"])
        lines[known] = self._old[at[known]]
        if latents is not None:
            identity = json.loads(latents.identity)
            lines["picture"] = np.ascontiguousarray(catalogue.digest[rows][:, :8]).view("<u8")[:, 0]
            lines["media"] = _hash(identity["media"], identity["compute"])
            lines["placed"] = _hash(*_placing(settings), identity["preprocessing"], latents.seeds[0])
            encoding = [identity["encoding"]] if "encoding" in identity else []
            lines["kept"] = _hash(identity["content"], identity["dtype"], latents.seeds[1], *encoding)
        if text is not None:
            lines["captions"] = catalogue.caption_checks(rows)
            lines["text"] = _hash(text.identity)
        return lines

    def pictures(self, lines: NDArray[Any]) -> list[str]:
        """Why latents of these samples are absent: "new", "changed", … one word or phrase each."""
        reasons = [("picture", "changed"), ("media", "VAE changed"), ("placed", "placement changed"),
                   ("kept", "cache settings changed")]  # fmt: skip
        return self._why(lines, "media", reasons)

    def captions(self, lines: NDArray[Any]) -> list[str]:
        """Why embeddings of captions are absent. lines: of the samples they belong to."""
        return self._why(lines, "text", [("captions", "changed"), ("text", "text encoder changed")])

    def caption_of_none(self, text: TextCache, caption: str) -> str:
        """Why the embedding of a caption is absent that belongs to no sample."""
        if not self._old["text"].any():
            return "new"
        if _hash(text.identity) not in self._old["text"]:
            return "text encoder changed"
        return "entry gone" if caption == "" else "new"

    def write(self, lines: NDArray[Any]) -> None:
        """Keeps these lines, and the old ones of other samples. A folder that cannot be written keeps the old."""
        at, known = self._find(lines["key"])
        if known.all() and (self._old[at] == lines).all():
            return
        is_other = np.ones(len(self._old), dtype=np.bool_)
        is_other[at[known]] = False
        merged = np.concatenate([self._old[is_other], lines])
        merged = merged[np.argsort(merged["key"], kind="stable")]
        self._memo.put("ledger", self._key, merged.tobytes(), keep=_KEPT)

    def _why(self, lines: NDArray[Any], known_by: str, reasons: Sequence[tuple[str, str]]) -> list[str]:
        at, known = self._find(lines["key"])
        old = self._old[at] if len(self._old) else np.zeros(len(lines), dtype=_LEDGER)
        known &= old[known_by] != 0
        why = np.full(len(lines), "entry gone", dtype=object)
        for name, reason in reversed(reasons):
            why[old[name] != lines[name]] = reason
        why[~known] = "new"
        return [str(reason) for reason in why]

    def _find(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        in_order, at = np.argsort(keys), np.empty(len(keys), dtype=np.int64)
        at[in_order] = np.minimum(np.searchsorted(self._old["key"], keys[in_order]), max(len(self._old) - 1, 0))
        known = self._old["key"][at] == keys if len(self._old) else np.zeros(len(keys), dtype=np.bool_)
        return at, known


def reasons(
    catalogue: Catalogue, settings: DataSettings, ledger: Ledger, caches: Caches, lookups: Lookups
) -> tuple[Counter[str], Counter[str]]:
    """How many pictures and how many captions are absent for each reason."""

    def lines(rows: NDArray[np.int32]) -> NDArray[Any]:
        return ledger.lines(catalogue, rows, settings, latents=caches.latents, text=caches.text)

    of_pictures: dict[int, str] = {}
    for looked in lookups.pictures:
        absent = np.flatnonzero(looked.absent)
        why = ledger.pictures(lines(looked.needed.rows[absent]))
        for i, reason in zip(absent.tolist(), why, strict=True):
            of_pictures.setdefault(int(looked.needed.rows[i]), "entry damaged" if looked.damaged[i] else reason)
    of_captions: Counter[str] = Counter()
    captions = lookups.captions
    if captions is not None and caches.text is not None:
        absent = np.flatnonzero(captions.absent)
        of_rows = captions.needed.rows[absent]
        why = ledger.captions(lines(of_rows))  # a line of row −1 is not looked at
        for i, row, reason in zip(absent.tolist(), of_rows.tolist(), why, strict=True):
            of_none = ledger.caption_of_none(caches.text, captions.needed.captions[i]) if row < 0 else reason
            of_captions["entry damaged" if captions.damaged[i] else of_none] += 1
    return Counter(of_pictures.values()), of_captions


def in_words(one: str, reasons: Iterable[str] | Mapping[str, int]) -> tuple[str, ...]:
    """`("2 pictures changed", "1 picture (VAE changed)")` from ("changed", "changed", "VAE changed"), the most frequent
    first."""
    counts = Counter(reasons).most_common()
    shown = [(n, reason if reason in ("new", "changed") else f"({reason})") for reason, n in counts]
    return tuple(f"{n} {one}{'s' if n > 1 else ''} {reason}" for n, reason in shown)


def _placing(settings: DataSettings) -> tuple[object, ...]:
    b = settings.buckets
    return (settings.resolution, b.shape, b.sizes, b.step, b.max_aspect, settings.crop, settings.jitter, settings.flip,
            settings.resize, settings.antialias, settings.background, settings.cache.crops,
            *([settings.clips.model_dump_json()] if settings.has_clips else []))  # fmt: skip


def _hash(*values: object) -> int:
    text = json.dumps([str(value) for value in values])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") or 1


def _as_array(addresses: Iterable[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(addresses), dtype=np.uint8).reshape(-1, 32)


def share(digests: NDArray[np.uint8], rank: int, world_size: int) -> NDArray[np.bool_]:
    """Which pictures are a process's own to look for and to encode: divided by content, (n, 32), so that no process has
    to tell another, and equal ones fall to one."""
    numbers = np.ascontiguousarray(digests[:, 24:]).view("<u8")[:, 0]
    return np.asarray(numbers % np.uint64(world_size) == rank, dtype=np.bool_)
