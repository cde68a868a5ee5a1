"""Filling the cache: find what it lacks, encode that with the family, append it. Used by the verb `cache`, and by
`train` before the first step.

Every process works out the same list of absent entries and makes those whose address falls to it. What another process
(of this run or another one) has made meanwhile is not made again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint import fault_injection
from mezzotint.data.cache.entries import LatentCache, LatentLayout, TextCache, as_still
from mezzotint.data.cache.store import Store
from mezzotint.data.cache.text_rows import layout_of
from mezzotint.data.files.overrides import Marked
from mezzotint.data.loading.reading import read_frames, read_picture
from mezzotint.data.loading.worker import to_pixels
from mezzotint.diffusion import noise
from mezzotint.errors import DatasetError
from mezzotint.families.base import Encodes, ModelFamily, posterior_sample
from mezzotint.recipe.counting import counted
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import TextEmbedding
from mezzotint.tasks.cache import import_cache
from mezzotint.tasks.cache.inventory import (
    LatentEntries,
    Ledger,
    TextEntries,
    in_words,
    latent_entries,
    share,
    text_entries,
)
from mezzotint.weights.files import text_cache_npz
from mezzotint.weights.model_files import EncodedSpec

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue

VERIFIED_BYTES = 8 << 30
"""Entries of no more bytes than this are read and checked at each start."""

_PIXELS_PER_BATCH = 8 * 512 * 512
_CAPTIONS_PER_BATCH = 32
_SECONDS_BETWEEN_LINES = 5.0


@dataclass(frozen=True, slots=True)
class CacheSummary:
    """What a filling found and made, over all processes. wanted, present, made: entries. why: the reasons in words
    ("2 pictures changed"). encoded: entries that this process encoded. bytes: of these stores on disk. folders: where
    they lie."""

    wanted: int
    present: int
    made: int
    why: tuple[str, ...]
    encoded: int
    bytes: int
    folders: tuple[str, ...]

    def lines(self) -> tuple[str, ...]:
        """For the reader: where, how many, why."""
        what = f"made {self.made}: {', '.join(self.why)}" if self.made else "nothing to make"
        places = [f"cache in {folder}" for folder in self.folders]
        return (
            *places,
            f"cache: {counted(self.wanted, 'entry')}, {self.present} were there, {what}; {_size(self.bytes)}",
        )


@dataclass(frozen=True, slots=True)
class Worker:
    """What encoding needs: the data, the family on demand, this process's place. `load` is called with what it is to
    encode. encoded: what the model takes of what others have encoded."""

    catalogue: Catalogue
    settings: DataSettings
    load: Callable[[Encodes], ModelFamily]
    device: torch.device
    rank: int
    world_size: int
    say: Callable[[str], None]
    encoded: EncodedSpec | None = None


def fill(
    catalogue: Catalogue,
    rows: NDArray[np.int32],
    settings: DataSettings,
    *,
    latents: LatentCache | None,
    text: TextCache | None,
    load: Callable[[Encodes], ModelFamily],
    device: torch.device,
    extra_captions: Sequence[str] = (),
    rank: int = 0,
    world_size: int = 1,
    barrier: Callable[[], None] = lambda: None,
    say: Callable[[str], None] = print,
    verify_bytes: int | None = VERIFIED_BYTES,
    encoded: EncodedSpec | None = None,
) -> CacheSummary:
    """Encodes whatever the caches lack of these rows (held-out rows belong to them, too) and of `extra_captions` (such
    as preview prompts). The empty caption is always there. Entries are durable when this returns, on all processes.

    load: called with what is to be encoded, and only when something is absent; the family comes back with the parts for
    it on `device`, in the type they compute in. barrier: waits for all processes.
    encoded: of the family, for data sets that others have encoded.
    verify_bytes: entries are read and checked when all of them are no more bytes than this; None checks any number.
    Raises DatasetError for a picture that cannot be read any more, CacheError, StorageError; what was finished stays.
    """
    root = latents.root if latents else text.root if text else settings.cache.path
    worker = Worker(catalogue, settings, load, device, rank, world_size, say if rank == 0 else _in_silence, encoded)
    pictures = _look_for_latents(worker, rows, latents, verify_bytes) if latents else ()
    captions = _look_for_text(worker, rows, text, extra_captions, verify_bytes) if text else None
    ledger = Ledger(root, settings)
    lines = ledger.lines(catalogue, rows, settings, latents=latents, text=text)
    why = _why(worker, rows, ledger, lines, pictures, captions)
    barrier()  # all have looked; from here on things change
    try:
        count = _fill_latents(worker, latents, pictures) if latents else 0
        count += _fill_text(worker, text, captions) if text and captions else 0
    finally:
        _close(latents, text)
    barrier()
    if rank == 0:
        ledger.write(lines)
    return _summary(pictures, captions, why, count, latents, text)


@dataclass(frozen=True, slots=True)
class _Pictures:
    """What is wanted in one bucket, and which of it is absent or damaged, each (n,)."""

    needed: LatentEntries
    absent: NDArray[np.bool_]
    damaged: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Captions:
    needed: TextEntries
    absent: NDArray[np.bool_]
    damaged: NDArray[np.bool_]


def _look_for_latents(
    worker: Worker, rows: NDArray[np.int32], latents: LatentCache, verify_bytes: int | None
) -> tuple[_Pictures, ...]:
    needed = latent_entries(worker.catalogue, rows, worker.settings, latents)
    stores = [latents.store(w.bucket, is_still=w.is_still) for w in needed]
    total = sum(len(w.rows) * store.row_bytes for w, store in zip(needed, stores, strict=True) if store)
    checks = verify_bytes is None or total <= verify_bytes
    return tuple(
        _Pictures(w, *_absent(store, w.addresses, checks)) for w, store in zip(needed, stores, strict=True)
    )  # fmt: skip


def _look_for_text(
    worker: Worker, rows: NDArray[np.int32], text: TextCache, extra: Sequence[str], verify_bytes: int | None
) -> _Captions:
    needed = text_entries(worker.catalogue, rows, text, extra)
    stored = text.rows()
    checks = verify_bytes is None or (stored is not None and len(needed.rows) * stored.row_bytes <= verify_bytes)
    damaged = np.zeros(len(needed.rows), dtype=np.bool_)
    if stored is None:
        return _Captions(needed, ~damaged, damaged)
    absent = ~stored.has(needed.addresses, checks=checks)
    damaged[absent] = stored.damaged(needed.addresses[absent])
    return _Captions(needed, absent, damaged)


def _absent(
    store: Store | None, addresses: NDArray[np.uint8], checks: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    if store is None:
        return np.ones(len(addresses), dtype=np.bool_), np.zeros(len(addresses), dtype=np.bool_)
    absent = (store.sound(addresses) if checks else store.find(addresses)) < 0
    damaged = np.zeros(len(addresses), dtype=np.bool_)
    damaged[absent] = store.damaged(addresses[absent])
    return absent, damaged


def _why(
    worker: Worker,
    rows: NDArray[np.int32],
    ledger: Ledger,
    lines: NDArray[Any],
    pictures: Sequence[_Pictures],
    captions: _Captions | None,
) -> tuple[str, ...]:
    line_of = np.full(len(worker.catalogue) + 1, -1, dtype=np.int64)  # row −1, of no sample, has line −1
    line_of[rows] = np.arange(len(rows))
    of_pictures: dict[int, str] = {}
    for looked in pictures:
        absent = np.flatnonzero(looked.absent)
        reasons = ledger.pictures(lines[line_of[looked.needed.rows[absent]]])
        for i, reason in zip(absent.tolist(), reasons, strict=True):
            of_pictures.setdefault(int(looked.needed.rows[i]), "entry damaged" if looked.damaged[i] else reason)
    of_captions: list[str] = []
    if captions is not None:
        for i in np.flatnonzero(captions.absent).tolist():
            reason = ledger.caption(lines, int(line_of[captions.needed.rows[i]]), captions.needed.captions[i])
            of_captions.append("entry damaged" if captions.damaged[i] else reason)
    return in_words("picture", of_pictures.values()) + in_words("caption", of_captions)


def _close(latents: LatentCache | None, text: TextCache | None) -> None:
    for cache in (latents, text):
        for store in cache.stores if cache else ():
            store.close_writer()


def _summary(
    pictures: Sequence[_Pictures],
    captions: _Captions | None,
    why: tuple[str, ...],
    encoded: int,
    latents: LatentCache | None,
    text: TextCache | None,
) -> CacheSummary:
    absent = [looked.absent for looked in (*pictures, *((captions,) if captions else ()))]
    needed, added = sum(len(a) for a in absent), sum(int(a.sum()) for a in absent)
    size, folders = 0, []
    for cache in (latents, text):
        if cache is not None:
            cache.refresh()
            size += sum(store.bytes_on_disk for store in cache.stores)
            folders.append(str(cache.folder.absolute()))
    return CacheSummary(needed, needed - added, added, why, encoded, size, tuple(folders))


def _fill_latents(worker: Worker, latents: LatentCache, pictures: Sequence[_Pictures]) -> int:
    mine = [looked.absent & share(looked.needed.addresses, worker.rank, worker.world_size) for looked in pictures]
    count = sum(int(m.sum()) for m in mine)
    if not count:
        return 0
    if latents.is_imported:
        return _take_over_latents(worker, latents, pictures, mine)
    progress, encoded = _Progress(worker, "pictures", count), 0
    family = worker.load("media")
    with ThreadPoolExecutor(max_workers=max(worker.settings.workers, 1)) as pool:
        for looked, of_bucket in zip(pictures, mine, strict=True):
            w = looked.needed
            size = min(max(_PIXELS_PER_BATCH // (w.bucket.pixels * w.bucket.frames), 1), 64)
            for some, pixels in _decoded(worker, latents, w, _batches(np.flatnonzero(of_bucket), size), pool):
                entries = _still_absent(latents.store(w.bucket, is_still=w.is_still), w.addresses, some)
                _encode_pictures(worker, latents, family, w, some[entries], pixels[torch.from_numpy(entries)])
                encoded += len(entries)
                progress.add(len(some))
    return encoded


def _take_over_latents(
    worker: Worker, latents: LatentCache, pictures: Sequence[_Pictures], mine: Sequence[NDArray[np.bool_]]
) -> int:
    count = sum(int(m.sum()) for m in mine)
    worker.say(f"cache: latents of {counted(count, 'picture')} to take over from files, {import_cache.AGE}")
    encoded = import_cache.require_encoded(worker.encoded)
    for looked, of_bucket in zip(pictures, mine, strict=True):
        import_cache.latents(worker.catalogue, latents, looked.needed, np.flatnonzero(of_bucket), encoded)
    return count


def _decoded(
    worker: Worker, latents: LatentCache, needed: LatentEntries, batches: Iterator[NDArray[np.int64]], pool: Executor
) -> Iterator[tuple[NDArray[np.int64], Tensor]]:
    """Batches with their uint8 pixels; the next one is decoded while this one is encoded."""
    ahead: deque[tuple[NDArray[np.int64], list[Future[NDArray[np.uint8]]]]] = deque()
    for some in batches:
        ahead.append((some, [pool.submit(_decode, worker, latents, needed, int(i)) for i in some]))
        if len(ahead) > 1:
            yield _collected(*ahead.popleft())
    while ahead:
        yield _collected(*ahead.popleft())


def _collected(
    some: NDArray[np.int64], pictures: Sequence[Future[NDArray[np.uint8]]]
) -> tuple[NDArray[np.int64], Tensor]:
    return some, torch.stack([torch.from_numpy(picture.result()) for picture in pictures])


def _decode(worker: Worker, latents: LatentCache, needed: LatentEntries, entry: int) -> NDArray[np.uint8]:
    row = int(needed.rows[entry])
    fault_injection.reach("data.decode")
    picture = _read(worker, latents, needed, entry)
    if not worker.catalogue.verify(row):
        path = worker.catalogue.path(row)
        raise DatasetError(
            f"{path}: its content is not what the index says, although size and times are; `touch` the file and start "
            "again",
            code="E1251",
        )
    return picture


def _read(worker: Worker, latents: LatentCache, needed: LatentEntries, entry: int) -> NDArray[np.uint8]:
    """(3, H, W), or (3, F, H, W) of a clip."""
    row, view, still = (int(one[entry]) for one in (needed.rows, needed.views, needed.stills))
    placed = latents.placement(worker.catalogue, row, view, needed.clip)
    if not (worker.settings.has_clips or needed.is_still):
        return read_picture(worker.catalogue, row, placed, worker.settings)
    times = latents.times(worker.catalogue, row, needed.clip.frames, view, still)
    placed = placed if still < 0 else as_still(placed)
    frames = read_frames(worker.catalogue, row, placed, times, worker.settings).numpy()
    return frames[:, 0] if needed.is_still else frames


def _encode_pictures(
    worker: Worker,
    latents: LatentCache,
    family: ModelFamily,
    needed: LatentEntries,
    entries: NDArray[np.int64],
    pixels: Tensor,
) -> None:
    if not len(entries):
        return
    fault_injection.reach("cache.encode")
    rows = family.encode_media(to_pixels(pixels, worker.device))
    if latents.content == "sample":
        hashes = worker.catalogue.key_hash[needed.rows[entries]]
        of_draws = zip(hashes, needed.views[entries], needed.stills[entries], strict=True)
        keys = [latents.draw(int(key_hash), int(view), int(still)) for key_hash, view, still in of_draws]
        numbers = torch.from_numpy(np.array(keys, dtype=np.uint64).view(np.int64)).to(rows.device)
        rows = posterior_sample(rows, noise.normal(numbers, (rows.shape[1] // 2, *rows.shape[2:])))
    pixels_per_latent = needed.bucket.width // rows.shape[-1]
    has_frames = worker.settings.has_clips or needed.is_still
    latents.define(LatentLayout(rows.shape[1], pixels_per_latent, family.grid.frames if has_frames else 0))
    store = latents.store(needed.bucket, is_still=needed.is_still)
    assert store is not None
    names = [str(worker.catalogue.path(int(row))) for row in needed.rows[entries]]
    store.append(needed.addresses[entries], rows, names=names)


def _is_other(text: TextCache, needed: TextEntries, some: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of some captions are those of rows whose embeddings another trainer has made."""
    return (needed.rows[some] >= 0) & text.is_imported


def _take_other(worker: Worker, text: TextCache, needed: TextEntries, mine: NDArray[np.int64]) -> int:
    """Takes over what another trainer has encoded; returns how many."""
    taken = mine[_is_other(text, needed, mine)]
    if len(taken):
        worker.say(f"cache: {counted(len(taken), 'embedding')} to take over from files, {import_cache.AGE}")
        import_cache.texts(worker.catalogue, text, needed, taken, import_cache.require_encoded(worker.encoded))
    return len(taken)


def _fill_text(worker: Worker, text: TextCache, captions: _Captions) -> int:
    needed = captions.needed
    mine = np.flatnonzero(captions.absent & share(needed.addresses, worker.rank, worker.world_size))
    if not len(mine):
        return 0
    of_files = np.array([bool(mark) for mark in needed.marks], dtype=np.bool_)
    taken = _take_over(worker, text, needed, mine[of_files[mine]]) + _take_other(worker, text, needed, mine)
    mine = mine[~(of_files[mine] | _is_other(text, needed, mine))]
    if not len(mine):
        return taken
    progress, encoded = _Progress(worker, "captions", len(mine)), taken
    family = worker.load("text")
    for some in _batches(mine, _CAPTIONS_PER_BATCH):
        entries = some[_absent_still(text, needed.addresses, some)]
        if len(entries):
            _encode_captions(text, family, [needed.captions[i] for i in entries], needed.addresses[entries])
        encoded += len(entries)
        progress.add(len(some))
    return encoded


def _take_over(worker: Worker, text: TextCache, needed: TextEntries, entries: NDArray[np.int64]) -> int:
    """Keeps the embeddings of these captions that other trainers have made. All files have one length and one width,
    those of the model's text where its files say them. Returns how many."""
    if not len(entries):
        return 0
    worker.say(f"cache: {counted(len(entries), 'embedding')} to take over from files, whose age cannot be checked")
    length, width = text.expected_shape or (None, None)
    if text.layout is not None:
        length, width = text.layout.length, text.layout.width
    for some in _batches(entries, _CAPTIONS_PER_BATCH):
        states, masks = [], []
        for entry in some.tolist():
            path = Marked.decoded(needed.marks[entry]).path
            file = text_cache_npz.read(path, length=length, width=width)
            length, width = file.states.shape
            states.append(torch.from_numpy(file.states))
            masks.append(torch.from_numpy(file.mask))
        embedding = TextEmbedding(torch.stack(states), torch.stack(masks))
        _keep(text, embedding, needed.addresses[some], [needed.captions[entry] for entry in some.tolist()])
    return len(entries)


@torch.no_grad()
def _encode_captions(
    text: TextCache, family: ModelFamily, captions: Sequence[str], addresses: NDArray[np.uint8]
) -> None:
    fault_injection.reach("cache.encode")
    _keep(text, family.encode_text(captions), addresses, captions)


def _keep(text: TextCache, embedding: TextEmbedding, addresses: NDArray[np.uint8], captions: Sequence[str]) -> None:
    text.define(layout_of(embedding))
    rows = text.rows()
    assert rows is not None
    rows.append(addresses, embedding, names=[f"the caption {caption!r}" for caption in captions])


def _batches(entries: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    return (entries[i : i + size] for i in range(0, len(entries), size))


def _absent_still(text: TextCache, addresses: NDArray[np.uint8], entries: NDArray[np.int64]) -> NDArray[np.int64]:
    """`_still_absent` of embeddings."""
    rows = text.rows()
    if rows is None:
        return np.arange(len(entries))
    rows.refresh()
    return np.flatnonzero(~rows.has(addresses[entries], checks=False))


def _still_absent(store: Store | None, addresses: NDArray[np.uint8], entries: NDArray[np.int64]) -> NDArray[np.int64]:
    """Positions in `entries` of those that no other process has made since."""
    if store is None:
        return np.arange(len(entries))
    store.refresh()
    return np.flatnonzero(store.find(addresses[entries]) < 0)


class _Progress:
    """Says every few seconds how far it is."""

    def __init__(self, worker: Worker, what: str, count: int) -> None:
        others = f", this process's share of {worker.world_size}" if worker.world_size > 1 else ""
        worker.say(f"cache: {count} {what if count > 1 else what[:-1]} to encode{others}")
        self._say, self._what, self._count = worker.say, what, count
        self._began = self._said = time.monotonic()
        self._done = 0

    def add(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._said >= _SECONDS_BETWEEN_LINES and self._done < self._count:
            self._said = now
            rate = self._done / (now - self._began)
            self._say(f"cache: {self._done} of {self._count} {self._what}, {rate:.1f}/s")


def _in_silence(_: str) -> None:
    return


def _size(count: int) -> str:
    amount, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount >= 1024:
            amount, unit = amount / 1024, larger
    return f"{count} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"
