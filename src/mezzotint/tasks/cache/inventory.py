"""Which cache entries a data set wants, and why those that are absent are: told from a small ledger of what the last
filling saw.

The ledger (one array a data set, beside the stores) is advisory. It never decides what is made, only how that is
explained: `2 pictures changed, 1 caption changed`.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.buckets import buckets
from mezzotint.data.cache import entries
from mezzotint.data.cache.entries import LatentCache, TextCache
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.errors import CacheError, StorageError
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.shapes import Size

_LEDGER = np.dtype([(name, "<u8") for name in ("key", "picture", "media", "placed", "kept", "captions", "text")])


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
        if settings.clips.stills_from == "clips":
            groups.append(_frames_of_bucket(catalogue, here, latents, table[number], settings.clips.stills))
    return tuple(groups)


def _of_bucket(
    catalogue: Catalogue, rows: NDArray[np.int32], latents: LatentCache, bucket: Size, *, is_still: bool = False
) -> LatentEntries:
    owners: dict[bytes, tuple[int, int, int]] = {}
    for row, view in product(rows.tolist(), range(latents.views)):
        placed = latents.placement(catalogue, row, view, bucket)
        owners.setdefault(latents.address(catalogue, row, placed, view), (row, view, -1))
    return _entries(owners, bucket, bucket, is_still=is_still)


def _frames_of_bucket(
    catalogue: Catalogue, rows: NDArray[np.int32], latents: LatentCache, clip: Size, num: int
) -> LatentEntries:
    owners: dict[bytes, tuple[int, int, int]] = {}
    for row, view in product(rows.tolist(), range(latents.views)):
        placed = latents.placement(catalogue, row, view, clip)
        for still in range(num):
            owners.setdefault(latents.address(catalogue, row, placed, view, still=still), (row, view, still))
    return _entries(owners, Size(clip.width, clip.height), clip, is_still=True)


def _entries(
    owners: Mapping[bytes, tuple[int, int, int]], bucket: Size, clip: Size, *, is_still: bool
) -> LatentEntries:
    places = np.array(list(owners.values()), dtype=np.int32).reshape(-1, 3)
    views, stills = places[:, 1].astype(np.int16), places[:, 2].astype(np.int16)
    return LatentEntries(bucket, _as_array(owners), places[:, 0], views, stills, clip, is_still)


def text_entries(catalogue: Catalogue, rows: NDArray[np.int32], text: TextCache, extra: Sequence[str]) -> TextEntries:
    """Every caption that these rows can choose, the empty one, and `extra`. Where rows have files of embeddings, the
    empty caption only if captions are dropped; of embeddings that are taken over, which never are, without it."""
    own = catalogue.overrides
    of_files = any(own.embedding_of(row) for row in rows.tolist())
    always = extra if text.is_imported or (of_files and not text.drops) else ("", *extra)
    rows_of: dict[tuple[str, str], int] = dict.fromkeys(((caption, "") for caption in always), -1)
    for row in rows.tolist():
        mark = own.embedding_of(row)
        for caption in text.captions_of(catalogue, row):
            rows_of.setdefault((caption, mark if caption or not text.drops else ""), row)
    addresses = _as_array(text.address(caption, mark) for caption, mark in rows_of)
    captions, marks = (tuple(key[place] for key in rows_of) for place in (0, 1))
    return TextEntries(captions, addresses, np.array(list(rows_of.values()), dtype=np.int32), marks)


class Ledger:
    """What the last filling saw of each sample: 64-bit hashes of its picture, captions and of the identities."""

    def __init__(self, folder: Path, settings: DataSettings) -> None:
        places = json.dumps([str(path.absolute()) for path in settings.path])
        self._path = folder / "ledgers" / f"{hashlib.sha256(places.encode()).hexdigest()[:16]}.npy"
        self._old = _read(self._path)

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
            lines["kept"] = _hash(identity["content"], identity["dtype"], latents.seeds[1])
        if text is not None:
            lines["captions"] = [_hash(*catalogue.captions(row)) for row in rows.tolist()]
            lines["text"] = _hash(text.identity)
        return lines

    def pictures(self, lines: NDArray[Any]) -> list[str]:
        """Why latents of these samples are absent: "new", "changed", … one word or phrase each."""
        reasons = [("picture", "changed"), ("media", "VAE changed"), ("placed", "placement changed"),
                   ("kept", "cache settings changed")]  # fmt: skip
        return self._why(lines, "media", reasons)

    def caption(self, lines: NDArray[Any], line: int, caption: str) -> str:
        """Why the embedding of a caption is absent. line: of the sample it belongs to, −1 for none."""
        if line >= 0:
            reasons = [("captions", "changed"), ("text", "text encoder changed")]
            return self._why(lines[line : line + 1], "text", reasons)[0]
        if not len(lines) or not self._old["text"].any():
            return "new"
        if lines["text"][0] not in self._old["text"]:
            return "text encoder changed"
        return "entry gone" if caption == "" else "new"

    def write(self, lines: NDArray[Any]) -> None:
        """Keeps these lines, and the old ones of other samples. A folder that cannot be written keeps the old."""
        others = self._old[~np.isin(self._old["key"], lines["key"])]
        merged = np.concatenate([others, lines])
        merged = merged[np.argsort(merged["key"], kind="stable")]
        buffer = io.BytesIO()
        np.save(buffer, merged, allow_pickle=False)
        try:
            entries.write_durably(self._path, buffer.getvalue())
        except (CacheError, StorageError):
            return  # it only explains

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
        at = np.minimum(np.searchsorted(self._old["key"], keys), max(len(self._old) - 1, 0))
        known = self._old["key"][at] == keys if len(self._old) else np.zeros(len(keys), dtype=np.bool_)
        return at, known


def in_words(one: str, reasons: Iterable[str]) -> tuple[str, ...]:
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


def _read(path: Path) -> NDArray[Any]:
    try:
        lines = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        lines = np.zeros(0, dtype=_LEDGER)
    return lines if isinstance(lines, np.ndarray) and lines.dtype == _LEDGER else np.zeros(0, dtype=_LEDGER)


def _hash(*values: object) -> int:
    text = json.dumps([str(value) for value in values])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") or 1


def _as_array(addresses: Iterable[bytes]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(addresses), dtype=np.uint8).reshape(-1, 32)


def share(addresses: NDArray[np.uint8], rank: int, world_size: int) -> NDArray[np.bool_]:
    """Which entries a process makes: divided by address, so that no process has to tell another."""
    numbers = np.ascontiguousarray(addresses[:, 24:]).view("<u8")[:, 0]
    return np.asarray(numbers % np.uint64(world_size) == rank, dtype=np.bool_)
