"""Fills the cache: looks up which entries are absent, encodes them with the family, and appends them. Used by the
command `cache`, and by `train` before the first step.

Every process looks up its share of the images and captions and encodes the absent ones. Entries that a process of
another run has added meanwhile are not encoded again.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint import fault_injection
from mezzotint.data.cache.entries import Caches, LatentCache, LatentLayout, TextCache, as_still
from mezzotint.data.cache.store import Store
from mezzotint.data.cache.text_rows import TextRows, layout_of
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.files.overrides import Marked
from mezzotint.data.formats.base import format_of
from mezzotint.data.loading.reading import BROKEN, read_frames, read_image
from mezzotint.data.loading.worker import to_pixels
from mezzotint.errors import DatasetError
from mezzotint.families.base import Encodes, ModelFamily, sample_latents
from mezzotint.settings.counting import format_bytes, format_count
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import TextEmbedding
from mezzotint.tasks.cache import _condition_filling, _mask_filling, import_cache, inventory
from mezzotint.tasks.cache._complete import Complete, Record
from mezzotint.tasks.cache._encoding import CAPTIONS, NO_REPEAT, Encoding
from mezzotint.tasks.cache.inventory import LatentEntries, Ledger, Lookup, Lookups, TextEntries
from mezzotint.weights.model_files import EncodedSpec

VERIFIED_BYTES = 8 << 30
"""Entries of at most this many bytes in all are read and verified at each start."""

_PIXELS_PER_BATCH = 8 * 512 * 512
_CAPTIONS_PER_BATCH = 32
_SECONDS_BETWEEN_LINES = 5.0


@dataclass(frozen=True, slots=True)
class CacheSummary:
    """The result of a filling, over all processes. needed, present, new: numbers of entries. reasons: the reasons
    ("2 images changed"). encoded: entries that this process encoded. bytes: of these stores on disk. folders: of the
    stores. repeats: whether encoding the same batch again gave the same numbers, where that was checked."""

    needed: int
    present: int
    new: int
    reasons: tuple[str, ...]
    encoded: int
    bytes: int
    folders: tuple[str, ...]
    repeats: bool = True

    def lines(self) -> tuple[str, ...]:
        """Lines for the user: folders, numbers and reasons."""
        added = f"{self.new} added: {', '.join(self.reasons)}" if self.new else "nothing to add"
        folders = [f"cache in {folder}" for folder in self.folders]
        summary = (
            f"cache: {format_count(self.needed, 'entry')}, {self.present} present, {added}; {format_bytes(self.bytes)}"
        )
        return (*folders, summary) if self.repeats else (*folders, summary, NO_REPEAT)


@dataclass(frozen=True, slots=True)
class Worker:
    """What encoding needs: the data, a loader of the family, this process's rank.

    load: called with what to encode, only when something is absent; returns the family with the necessary parts on
    `device`, in the dtype they compute in. encoded: what the model accepts from other trainers' caches. barrier, share,
    gather: as in `Runtime`."""

    catalogue: Catalogue
    settings: DataSettings
    load: Callable[[Encodes], ModelFamily]
    device: torch.device
    encoded: EncodedSpec | None = None
    rank: int = 0
    world_size: int = 1
    barrier: Callable[[], None] = lambda: None
    share: Callable[[str], str] = lambda text: text
    gather: Callable[[str], tuple[str, ...]] = lambda text: (text,)
    say: Callable[[str], None] = print


def fill(
    worker: Worker,
    rows: NDArray[np.int32],
    caches: Caches,
    extra_captions: Sequence[str] = (),
    *,
    verify_bytes: int | None = VERIFIED_BYTES,
) -> CacheSummary:
    """Encodes the missing entries of these rows (including held-out rows) and of `extra_captions` (such as preview
    prompts). The empty caption is always included. Entries are durable when this returns, on all processes.

    verify_bytes: entries are read and verified if they have at most this many bytes in all; None always verifies.
    Raises DatasetError for an image that can no longer be read, CacheError, StorageError; finished entries are kept.
    """
    if worker.rank:
        worker = replace(worker, say=lambda line: None)
    folders = tuple(str(cache.folder.absolute()) for cache in caches.in_use)
    record = Record(worker.catalogue, rows, worker.settings, caches, extra_captions)
    complete = _read_record(worker, record, verify_bytes)
    if complete is not None:
        return CacheSummary(complete.needed, complete.needed, 0, (), 0, complete.bytes, folders, complete.repeats)
    damaged = record.read_damaged()
    part = worker.rank, worker.world_size
    lookups = inventory.look_up(
        worker.catalogue, rows, worker.settings, caches, extra_captions, part=part, verify_bytes=verify_bytes
    )
    ledger = Ledger(caches.in_use[0].root, worker.settings)
    needed, present, reasons = _count_on_all_ranks(worker, lookups, ledger, caches)
    # no change to the cache before this line
    encoded, repeats = _fill_absent(worker, rows, caches, lookups)
    size = sum(store.bytes_on_disk for store in caches.stores)
    if worker.rank == 0:
        for store in caches.stores:
            store.put_in_order()
        ledger.write(ledger.lines(worker.catalogue, rows, worker.settings, latents=caches.latents, text=caches.text))
        if record.read_damaged() == damaged:  # otherwise the next start has to look up entries again
            record.write(Complete(needed, size, lookups.is_checked, repeats))
    return CacheSummary(needed, present, needed - present, reasons, encoded, size, folders, repeats)


def _read_record(worker: Worker, record: Record, verify_bytes: int | None) -> Complete | None:
    """The record of complete entries, which the first process reads for all; None if entries have to be looked up."""
    complete = record.read() if worker.rank == 0 and verify_bytes is not None else None
    if complete is not None and verify_bytes is not None and not (complete.is_checked or complete.bytes > verify_bytes):
        complete = None
    text = worker.share(json.dumps(asdict(complete)) if complete is not None else "")
    return Complete(**json.loads(text)) if text else None


def _count_on_all_ranks(
    worker: Worker, lookups: Lookups, ledger: Ledger, caches: Caches
) -> tuple[int, int, tuple[str, ...]]:
    """The numbers of needed and of present entries over all processes, and why others are absent. Synchronises the
    processes."""
    local_reasons = inventory.reasons(worker.catalogue, worker.settings, ledger, caches, lookups)
    count, absent = sum(map(len, lookups.absent)), sum(int(mask.sum()) for mask in lookups.absent)
    of_all = [json.loads(text) for text in worker.gather(json.dumps([count, count - absent, *local_reasons]))]
    phrases: list[str] = []
    for index, noun in ((2, "image"), (3, "caption")):
        reasons: Counter[str] = Counter()
        for of_process in of_all:
            reasons.update(of_process[index])
        phrases += inventory.describe(noun, reasons)
    return sum(numbers[0] for numbers in of_all), sum(numbers[1] for numbers in of_all), tuple(phrases)


def _fill_absent(worker: Worker, rows: NDArray[np.int32], caches: Caches, lookups: Lookups) -> tuple[int, bool]:
    """Encodes the absent entries of this process durably, and waits for all processes. Returns the number of entries
    that this process encoded, and whether encoding was deterministic on all."""
    latents, text = caches.latents, caches.text
    encodings = [Encoding(worker.device) for _ in caches.in_use]
    try:
        count = 0
        if latents is not None:
            count += _fill_latents(worker, latents, lookups.images, encodings[0])
            _fill_masks(worker, latents, rows)
            count += _fill_conditions(worker, latents, rows, encodings[0])
        if text is not None and lookups.captions is not None:
            count += _fill_text(worker, text, lookups.captions, encodings[-1])
    finally:
        for store in caches.stores:
            store.close_writer()
    worker.barrier()
    for cache in caches.in_use:
        cache.refresh()
    repeats = json.dumps(all(encoding.repeats for encoding in encodings))
    return count, all(json.loads(text) for text in worker.gather(repeats))


_Absent = Sequence[tuple[LatentEntries, NDArray[np.int64]]]
"""Entries of each bucket, and the indices of those to encode, (n,)."""


def _fill_latents(
    worker: Worker, latents: LatentCache, images: Sequence[Lookup[LatentEntries]], encoding: Encoding
) -> int:
    absent = [(lookup.needed, np.flatnonzero(lookup.absent)) for lookup in images]
    count = sum(len(entries) for _, entries in absent)
    if not count:
        return 0
    if latents.is_imported:
        worker.say(f"cache: importing latents of {format_count(count, 'image')} from files, {import_cache.AGE}")
        spec = import_cache.require_encoded(worker.encoded)
        for needed, entries in absent:
            import_cache.latents(worker.catalogue, latents, needed, entries, spec)
        return count
    return _encode_latents(worker, latents, absent, encoding)


def _encode_latents(worker: Worker, latents: LatentCache, absent: _Absent, encoding: Encoding) -> int:
    count = sum(len(entries) for _, entries in absent)
    progress, encoded = _Progress(worker, "images", count), 0
    family = encoding.set_memory_format(worker.load("media"))
    with ThreadPoolExecutor(max_workers=max(worker.settings.workers, 1)) as pool:
        for needed, of_bucket in absent:
            size = min(max(_PIXELS_PER_BATCH // (needed.bucket.pixels * needed.bucket.frames), 1), 64)
            batches = _batches(of_bucket, 1)
            to_encode = _find_still_absent_pixels(worker, latents, needed, batches, pool, progress)

            def encode(batch: _Pixels, needed: LatentEntries = needed) -> Tensor:
                return _moments(worker, latents, family, needed, *batch)

            with closing(encoding.run(encode, to_encode, at_once=size)) as of_batches:
                for (entries, _), rows in of_batches:
                    _store_latents(worker, latents, family, needed, entries, rows)
                    encoded += len(entries)
            for store in latents.stores:  # so that at most one bucket waits to be synced
                store.close_writer()
    return encoded


def _fill_masks(worker: Worker, latents: LatentCache, rows: NDArray[np.int32]) -> None:
    of_process = rows[inventory.images_of_process(worker.catalogue.digest[rows], worker.rank, worker.world_size)]
    if count := _mask_filling.fill(worker.catalogue, worker.settings, latents, of_process):
        worker.say(f"cache: {format_count(count, 'mask')} stored with the latents")


def _fill_conditions(worker: Worker, latents: LatentCache, rows: NDArray[np.int32], encoding: Encoding) -> int:
    count = _condition_filling.fill(
        worker.catalogue,
        worker.settings,
        latents,
        rows[inventory.images_of_process(worker.catalogue.digest[rows], worker.rank, worker.world_size)],
        load=lambda: worker.load("media"),
        encoding=encoding,
        device=worker.device,
    )
    if count:
        worker.say(f"cache: {format_count(count, 'condition image')} stored with the latents")
    return count


_Pixels = tuple[NDArray[np.int64], Tensor]
"""Entries of a bucket, (n,), and their uint8 pixels."""


def _find_still_absent_pixels(
    worker: Worker, latents: LatentCache, needed: LatentEntries, batches: Iterator[NDArray[np.int64]], pool: Executor,
    progress: _Progress,
) -> Iterator[_Pixels]:  # fmt: skip
    """Batches of entries that no other process has added meanwhile."""
    for batch, pixels in _decode_ahead(worker, latents, needed, batches, pool):
        entries = _find_still_absent(
            latents.store(needed.bucket, is_joined_image=needed.is_joined_image), needed.addresses, batch
        )
        progress.add(len(batch))
        if len(entries):
            fault_injection.reach("cache.encode")
            yield batch[entries], pixels[torch.from_numpy(entries)]


def _decode_ahead(
    worker: Worker, latents: LatentCache, needed: LatentEntries, batches: Iterator[NDArray[np.int64]], pool: Executor
) -> Iterator[_Pixels]:
    """Batches with their pixels; the next ones are decoded while the caller encodes."""

    def collect(batch: NDArray[np.int64], images: Sequence[Future[NDArray[np.uint8] | None]]) -> _Pixels:
        results = [image.result() for image in images]
        valid = [i for i, result in enumerate(results) if result is not None]
        pixels = [torch.from_numpy(result) for result in results if result is not None]
        return batch[valid], torch.stack(pixels) if pixels else torch.empty(0)

    ahead: deque[tuple[NDArray[np.int64], list[Future[NDArray[np.uint8] | None]]]] = deque()
    for batch in batches:
        ahead.append((batch, [pool.submit(_decode, worker, latents, needed, int(i)) for i in batch]))
        if len(ahead) > 1 and sum(len(entries) for entries, _ in ahead) > 2 * worker.settings.workers:
            yield collect(*ahead.popleft())
    while ahead:
        yield collect(*ahead.popleft())


def _decode(worker: Worker, latents: LatentCache, needed: LatentEntries, entry: int) -> NDArray[np.uint8] | None:
    """The pixels of an entry; None for a corrupt image with `data.on_corrupt=zero_weight`."""
    row = int(needed.rows[entry])
    fault_injection.reach("data.decode")
    try:
        image = _read(worker, latents, needed, entry)
    except DatasetError as error:
        is_skipped = error.code == BROKEN and worker.settings.on_corrupt == "zero_weight"
        if worker.settings.has_clips or needed.is_joined_image or not is_skipped:
            raise
        worker.say(f"cache: {worker.catalogue.path(row)} is corrupt: it gets no entry")
        return None
    if not worker.catalogue.verify(row):
        path = worker.catalogue.path(row)
        raise DatasetError(
            f"{path}: its content differs from the index, although its size and times are the same; `touch` the file "
            "and start again",
            code="E1251",
        )
    return image


def _read(worker: Worker, latents: LatentCache, needed: LatentEntries, entry: int) -> NDArray[np.uint8]:
    """(3, H, W), or (3, F, H, W) for a clip."""
    row, view, still = (int(column[entry]) for column in (needed.rows, needed.views, needed.joined_images))
    placed = latents.placement(worker.catalogue, row, view, needed.clip)
    if not (worker.settings.has_clips or needed.is_joined_image):
        return read_image(worker.catalogue, row, placed, worker.settings)
    times = latents.times(worker.catalogue, row, needed.clip.frames, view, still)
    placed = placed if still < 0 else as_still(placed)
    frames = read_frames(worker.catalogue, row, placed, times, worker.settings).numpy()
    return frames[:, 0] if needed.is_joined_image else frames


def _moments(
    worker: Worker, latents: LatentCache, family: ModelFamily, needed: LatentEntries, entries: NDArray[np.int64],
    pixels: Tensor,
) -> Tensor:  # fmt: skip
    """The rows to store: moments, or samples with `data.cache.content=sample`; of a model that animates flat, followed
    by what is encoded of the first frames."""
    placed = to_pixels(pixels, worker.device)
    rows = family.encode_media(placed)
    if latents.content == "sample":
        hashes = worker.catalogue.key_hash[needed.rows[entries]]
        of_draws = zip(hashes, needed.views[entries], needed.joined_images[entries], strict=True)
        keys = [latents.draw(int(key_hash), int(view), int(still)) for key_hash, view, still in of_draws]
        rows = sample_latents(rows, torch.from_numpy(np.array(keys, dtype=np.uint64).view(np.int64)))
    if family.animates:
        first = family.encode_first_frames(placed[:, :, 0], placed.shape[2])
        rows = torch.cat([part.flatten(1).to(rows.device) for part in (rows, *first.values())], dim=1)
    return rows


def _store_latents(
    worker: Worker, latents: LatentCache, family: ModelFamily, needed: LatentEntries, entries: NDArray[np.int64],
    rows: Tensor,
) -> None:  # fmt: skip
    has_frames = worker.settings.has_clips or needed.is_joined_image
    if family.animates:
        grid = family.grid
        channels = grid.channels * (2 if latents.content == "moments" else 1)
        latents.define(LatentLayout(channels, grid.pixels, grid.frames, grid.channels, family.vision_numbers))
    else:
        pixels_per_latent = needed.bucket.width // rows.shape[-1]
        latents.define(LatentLayout(rows.shape[1], pixels_per_latent, family.grid.frames if has_frames else 0))
    store = latents.store(needed.bucket, is_joined_image=needed.is_joined_image)
    assert store is not None
    names = [str(worker.catalogue.path(int(row))) for row in needed.rows[entries]]
    store.append(needed.addresses[entries], rows, names=names, at_once=False)


def _fill_text(worker: Worker, text: TextCache, captions: Lookup[TextEntries], encoding: Encoding) -> int:
    needed = captions.needed
    absent = np.flatnonzero(captions.absent)
    of_files = np.array([bool(mark) for mark in needed.marks], dtype=np.bool_)[absent]
    of_others = ~of_files & (needed.rows[absent] >= 0) & text.is_imported
    if of_files.any():
        count = format_count(int(of_files.sum()), "embedding")
        worker.say(f"cache: importing {count} from files, whose age cannot be checked")
        _import_embeddings(text, needed, absent[of_files], worker.settings.format)
    if of_others.any():
        worker.say(f"cache: importing {format_count(int(of_others.sum()), 'embedding')} from files, {import_cache.AGE}")
        spec = import_cache.require_encoded(worker.encoded)
        import_cache.texts(worker.catalogue, text, needed, absent[of_others], spec)
    imported = of_files | of_others
    return int(imported.sum()) + _encode_text(worker, text, needed, absent[~imported], encoding)


def _encode_text(
    worker: Worker, text: TextCache, needed: TextEntries, absent: NDArray[np.int64], encoding: Encoding
) -> int:
    """absent: indices of the entries to encode, (n,)."""
    if not len(absent):
        return 0
    progress, encoded = _Progress(worker, "captions", len(absent)), 0
    family = worker.load("text")
    if family.layer_streamer is not None:
        worker.say("cache: the text encoder's layers are streamed, a group at a time")

    def still_absent() -> Iterator[_Texts]:
        for batch in _batches(absent, CAPTIONS if text.images is None else 1):
            entries = batch[_find_still_absent(text.rows(), needed.addresses, batch)]
            progress.add(len(batch))
            if not len(entries):
                continue
            images = _read_seen_images(worker, text, needed, int(entries[0]))
            if text.images is None or images is not None:
                fault_injection.reach("cache.encode")
                yield entries, images

    def encode(texts: _Texts) -> TextEmbedding:
        entries, images = texts
        captions = [needed.captions[i] for i in entries]
        if images is not None:
            return encoding.text_with_images_of(family, captions[0], images)
        return encoding.text_of(family, captions)

    at_once = _CAPTIONS_PER_BATCH // CAPTIONS
    with closing(
        encoding.run(encode, still_absent(), at_once=at_once, layer_streamer=family.layer_streamer)
    ) as of_batches:
        for (entries, _), embedding in of_batches:
            _store_text(text, embedding, needed, entries)
            encoded += len(entries)
    return encoded


_Texts = tuple[NDArray[np.int64], tuple[Tensor | None, ...] | None]
"""Captions, (n,), and where the text encoder sees images the one caption's images."""


def _read_seen_images(
    worker: Worker, text: TextCache, needed: TextEntries, entry: int
) -> tuple[Tensor | None, ...] | None:
    """The images that the text encoder sees beside a caption; None if it sees none, or if one is corrupt."""
    if text.images is None:
        return None
    if not needed.with_images[entry]:
        return (None,) * len(worker.settings.condition_names)
    return _condition_filling.read_whole_images(worker.catalogue, int(needed.rows[entry]), text.images, worker.settings)


def _import_embeddings(text: TextCache, needed: TextEntries, entries: NDArray[np.int64], format_name: str) -> None:
    """Stores embeddings of these captions from other trainers' files. All files must have the same length and width:
    those of the model's text where its files contain them."""
    read = format_of(format_name).read_embedding
    assert read is not None, format_name
    length, width = text.expected_shape or (None, None)
    if text.layout is not None:
        length, width = text.layout.length, text.layout.width
    for batch in _batches(entries, _CAPTIONS_PER_BATCH):
        states, masks = [], []
        for entry in batch.tolist():
            path = Marked.decoded(needed.marks[entry]).path
            file = read(path, length, width)
            length, width = file.states.shape
            states.append(torch.from_numpy(file.states))
            masks.append(torch.from_numpy(file.mask))
        _store_text(text, TextEmbedding(torch.stack(states), torch.stack(masks)), needed, batch)


def _store_text(text: TextCache, embedding: TextEmbedding, needed: TextEntries, entries: NDArray[np.int64]) -> None:
    text.define(layout_of(embedding))
    rows = text.rows()
    assert rows is not None
    names = [f"the caption {needed.captions[entry]!r}" for entry in entries.tolist()]
    rows.append(needed.addresses[entries], embedding, names=names, at_once=False)


def _batches(entries: NDArray[np.int64], size: int) -> Iterator[NDArray[np.int64]]:
    return (entries[i : i + size] for i in range(0, len(entries), size))


def _find_still_absent(
    rows: Store | TextRows | None, addresses: NDArray[np.uint8], entries: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Positions in `entries` of those that no other process has added since."""
    if rows is None:
        return np.arange(len(entries))
    rows.refresh()
    return np.flatnonzero(~rows.has(addresses[entries], checks=False))


class _Progress:
    """Reports progress every few seconds."""

    def __init__(self, worker: Worker, noun: str, count: int) -> None:
        others = f", this process's share of {worker.world_size}" if worker.world_size > 1 else ""
        worker.say(f"cache: {count} {noun if count > 1 else noun[:-1]} to encode{others}")
        self._say, self._noun, self._count = worker.say, noun, count
        self._started = self._reported = time.monotonic()
        self._done = 0

    def add(self, done: int) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._reported >= _SECONDS_BETWEEN_LINES and self._done < self._count:
            self._reported = now
            rate = self._done / (now - self._started)
            self._say(f"cache: {self._done} of {self._count} {self._noun}, {rate:.1f}/s")
