"""Making the columns of a catalogue: list the samples, decode every picture once in parallel, write the result.

The result lies under an address made of all that it depends on, so that a second start finds it. Rows of an earlier
index whose file has the same name, size and times are taken over; what a killed start had decoded is in a journal.
Format and settings decide the samples, `media.probe` the pictures; `catalogue.py` reads what is written here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws, durable
from mezzotint.data import buckets, columns, media
from mezzotint.data.columns import TextBuilder, Texts
from mezzotint.data.formats.base import Skipped, Source
from mezzotint.errors import DatasetError
from mezzotint.recipe.data import DataSettings
from mezzotint.registry import find
from mezzotint.shapes import Size
from mezzotint.stages import Sample

VERSION = 1
"""The layout of an index; part of its address."""

LONG_CAPTION_WORDS = 60
"""Captions of more words are counted as long: CLIP reads 75 tokens, about so many words."""

_CHUNK = 64
_JOURNAL = "journal.jsonl"

Progress = Callable[[int, int], None]
_Answer = media.Probe | str


@dataclass(slots=True)
class Gathered:
    """Samples before their pictures are looked at, in growing columns. media: paths, relative to the root where they lie
    in it. stats: size and times of each file."""

    key: TextBuilder = field(default_factory=TextBuilder)
    media: TextBuilder = field(default_factory=TextBuilder)
    caption: TextBuilder = field(default_factory=TextBuilder)
    caption_starts: list[int] = field(default_factory=lambda: [0])
    root: list[int] = field(default_factory=list)
    repeats: list[float] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def add(self, item: Sample | Skipped, source: Source, number: int) -> None:
        """One more sample of a source, the `number`-th folder, or one that was skipped."""
        if isinstance(item, Skipped):
            self.skipped.append(item)
            return
        root = os.fspath(source.root) + os.sep
        path = os.fspath(item.media)
        self.key.append(item.key)
        self.media.append(path.removeprefix(root))
        for caption in item.captions:
            self.caption.append(caption)
        self.caption_starts.append(len(self.caption))
        self.root.append(number)
        self.repeats.append(item.repeats)
        self.weight.append(item.weight)


@dataclass(frozen=True, slots=True)
class Reused:
    """What is known of files from before. columns: of an earlier index. journal: answers of a start that was killed, by
    path, size and times."""

    columns: dict[str, NDArray[Any]]
    journal: dict[tuple[str, int, int, int], media.Probe]

    def answers(self, paths: Texts, stats: NDArray[np.int64], max_pixels: int) -> dict[int, media.Probe]:
        """What is known of each row, by its number; files that changed are not among them."""
        found = self._from_columns(paths, stats)
        if self.journal:
            for row in range(len(paths)):
                known = self.journal.get((paths[row], *stats[row].tolist()))
                if known is not None:
                    found[row] = known
        return {row: probe for row, probe in found.items() if probe.size.pixels <= max_pixels}

    def _from_columns(self, paths: Texts, stats: NDArray[np.int64]) -> dict[int, media.Probe]:
        old = self.columns
        if not old or not len(old["width"]):
            return {}
        hashes = np.fromiter((draws.text_key(paths[i]) for i in range(len(paths))), np.uint64, len(paths))
        order = np.argsort(old["path_hash"])
        at = order[np.minimum(np.searchsorted(old["path_hash"][order], hashes), len(order) - 1)]
        same = (old["path_hash"][at] == hashes) & (old["stats"][at] == stats).all(axis=1)
        rows = np.flatnonzero(same)
        size = zip(old["width"][at[rows]].tolist(), old["height"][at[rows]].tolist(), strict=True)
        digests, flags = old["digest"][at[rows]], old["conversions"][at[rows]].tolist()
        return {
            row: media.Probe(Size(width, height), digests[i].tobytes(), flags[i])
            for i, (row, (width, height)) in enumerate(zip(rows.tolist(), size, strict=True))
        }


def sources_of(settings: DataSettings) -> tuple[Source, ...]:
    """The folders of `data.path`, listed. Raises DatasetError E1201 for one that is not there, and for none at all."""
    if not settings.path:
        raise DatasetError("data.path is empty; set it to the folder of pictures", code="E1201")
    module = find("data/formats", settings.format)
    many = len(settings.path) > 1
    repeats = settings.repeats if len(settings.repeats) > 1 else settings.repeats * len(settings.path)
    from mezzotint.data.listing import walk

    listings = [walk(path, module.SUFFIXES) for path in settings.path]
    return tuple(
        Source(listing.root, settings, times, listing, f"{number}/" if many else "")
        for number, (listing, times) in enumerate(zip(listings, repeats, strict=True))
    )


def lineage(sources: Sequence[Source], settings: DataSettings) -> str:
    """The name under which all indexes of the same folders lie."""
    return _hash(settings.format, *(os.fspath(source.root) for source in sources))[:16]


def address(sources: Sequence[Source], settings: DataSettings) -> str:
    """The name of an index: everything that it depends on."""
    captions = settings.captions
    small = (settings.small, settings.resolution, settings.buckets.model_dump_json())
    wanted = (captions.source, captions.lines, captions.missing, settings.max_pixels, settings.repeats, small)
    listed = [source.listing.digest().hex() for source in sources]
    return _hash(str(VERSION), str(media.PREPROCESSING), settings.format, repr(wanted), *listed)[:32]


def make(
    sources: Sequence[Source],
    settings: DataSettings,
    folder: Path,
    *,
    before: Path | None,
    workers: int,
    progress: Progress | None,
) -> None:
    """Lists and decodes everything and writes the index `folder`. before: an earlier index of the same folders.

    Raises DatasetError for what makes a data set unusable as it is written (missing or contradicting captions), and
    StorageError. Unusable files are recorded, not raised.
    """
    gathered = Gathered()
    reader = find("data/formats", settings.format)
    for number, source in enumerate(sources):
        for item in reader.read_samples(source):
            gathered.add(item, source, number)
    roots = [source.root for source in sources]
    paths, stats = _files(gathered, roots)
    journal = folder.parent / _JOURNAL
    reused = Reused(_columns_of(before), _journal(journal))
    known = reused.answers(paths, stats, settings.max_pixels)
    answers: list[_Answer] = [known.get(row, "") for row in range(len(paths))]
    wanted = [row for row in range(len(paths)) if row not in known]
    done = len(known)
    with open(journal, "a", encoding="ascii") as notes:
        for rows, found in _probed(paths, wanted, settings.max_pixels, workers):
            for row, answer in zip(rows, found, strict=True):
                answers[row] = answer
                if isinstance(answer, media.Probe):
                    notes.write(_note(paths[row], stats[row], answer))
            notes.flush()
            done += len(rows)
            if progress is not None:
                progress(done, len(paths))
    _write(folder, gathered, sources, settings, answers, paths, stats, reused_rows=len(known))
    journal.unlink(missing_ok=True)


def _files(gathered: Gathered, roots: Sequence[Path]) -> tuple[Texts, NDArray[np.int64]]:
    relative = gathered.media.texts()
    paths = TextBuilder()
    stats = np.zeros((len(relative), 3), dtype=np.int64)
    for row, number in enumerate(gathered.root):
        path = os.path.join(roots[number], relative[row])
        paths.append(path)
        try:
            found = os.stat(path)
            stats[row] = found.st_size, found.st_mtime_ns, found.st_ctime_ns
        except OSError:
            stats[row] = -1  # the probe will say why
    return paths.texts(), stats


def _probed(
    paths: Texts, rows: Sequence[int], max_pixels: int, workers: int
) -> Iterator[tuple[Sequence[int], list[_Answer]]]:
    # threads: Pillow and the hash give the interpreter up while they work
    with ThreadPoolExecutor(workers, thread_name_prefix="probe") as pool:
        waiting: deque[tuple[Sequence[int], Future[list[_Answer]]]] = deque()
        try:
            for start in range(0, len(rows), _CHUNK):
                chunk = rows[start : start + _CHUNK]
                waiting.append((chunk, pool.submit(_probe_all, [paths[row] for row in chunk], max_pixels)))
                if len(waiting) > 2 * workers:
                    first, answer = waiting.popleft()
                    yield first, answer.result()
            while waiting:
                first, answer = waiting.popleft()
                yield first, answer.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _probe_all(paths: Iterable[str], max_pixels: int) -> list[_Answer]:
    answers: list[_Answer] = []
    for path in paths:
        try:
            answers.append(media.probe(Path(path), max_pixels))
        except DatasetError as error:
            answers.append(error.message.removeprefix(f"{path}: "))
    return answers


def _write(
    folder: Path,
    gathered: Gathered,
    sources: Sequence[Source],
    settings: DataSettings,
    answers: Sequence[_Answer],
    paths: Texts,
    stats: NDArray[np.int64],
    *,
    reused_rows: int,
) -> None:
    keys, captions = gathered.key.texts(), gathered.caption.texts()
    skipped = list(gathered.skipped)
    kept: list[int] = []
    table = buckets.table(settings)
    is_small = _is_small(answers, table)
    for row, answer in enumerate(answers):
        if isinstance(answer, str):
            skipped.append(Skipped(keys[row], answer))
        elif is_small[row] and settings.small == "skip":
            reason = f"{answer.size} is smaller than its bucket, and data.small=skip"
            skipped.append(Skipped(keys[row], reason, is_wanted=True))
        else:
            kept.append(row)
    probes = [answer for answer in (answers[row] for row in kept) if isinstance(answer, media.Probe)]
    rows = np.asarray(kept, dtype=np.int64)
    found = _columns(gathered, rows, probes)
    found["stats"] = stats[rows]
    found["path_hash"] = np.fromiter((draws.text_key(paths[row]) for row in kept), np.uint64, len(kept))
    about = {
        "fingerprint": _fingerprint(found),
        "reused": reused_rows,
        "decoded": len(answers) - reused_rows,
        "upscaled": int(is_small[rows].sum()),
        "skipped": [[s.path, s.reason, s.is_wanted] for s in sorted(skipped, key=lambda s: (s.path, s.reason))],
        "unknown": dict(sum((Counter(source.listing.unknown) for source in sources), Counter())),
        "empty_captions": _count(found, captions, rows, gathered, lambda text: not text.strip()),
        "long_captions": _count(found, captions, rows, gathered, lambda text: len(text.split()) > LONG_CAPTION_WORDS),
    }
    columns.write(folder, found, about)
