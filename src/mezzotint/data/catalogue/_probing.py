"""Probes every image or clip once, in parallel: between the list of samples and the columns.

Results of an earlier index are reused for files with the same name, size and times. Results are appended to a journal
as they arrive; a killed start loses at most the last few.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws, fault_injection, outside
from mezzotint.data.files import columns
from mezzotint.data.files.columns import Texts
from mezzotint.data.files.remote import NearFiles
from mezzotint.data.media import clip_files, decoding, timeouts
from mezzotint.data.media.decoding import Probe
from mezzotint.errors import DatasetError
from mezzotint.shapes import Size

_CHUNK = 8

Progress = Callable[[int, int], None]
Prober = Callable[[Path, int], Probe]


_Result = Probe | str

FACTS = np.dtype([
    ("width", "i4"), ("height", "i4"), ("frames", "i4"), ("begin", "f8"), ("rate", "f8"), ("digest", "u1", 32),
    ("conversions", "u2"), ("is_known", "?"),
])  # fmt: skip
"""Facts about a file, see `decoding.Probe`. width, height: after EXIF rotation. frames: 1 for an image."""


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """Facts about n files. paths: absolute. stats: (n, 3) int64, bytes, times of modification and change in
    nanoseconds. facts: (n,) of `FACTS`. reasons: why a file cannot be used, by number."""

    paths: Texts
    path_hash: NDArray[np.uint64]
    stats: NDArray[np.int64]
    facts: NDArray[Any]
    reasons: dict[int, str]

    @classmethod
    def at(cls, paths: Texts, near: NearFiles | None = None) -> KnownFiles:
        """Files of which only size and times are known. near: gives those of files on object storage."""
        n = len(paths)
        stats = np.full((n, 3), -1, dtype=np.int64)
        for i in range(n):
            with suppress(OSError):  # probing the file will report the error
                listed = near.stats(paths[i]) if near is not None else None
                stats[i] = listed or decoding.stats_of(paths[i])
        path_hash = np.fromiter((draws.text_key(paths[i]) for i in range(n)), np.uint64, n)
        return cls(paths, path_hash, stats, np.zeros(n, FACTS), {})

    def put(self, i: int, answer: _Result) -> None:
        if isinstance(answer, str):
            self.reasons[i] = answer
            return
        size, digest = answer.size, np.frombuffer(answer.digest, dtype=np.uint8)
        numbers = (answer.begin, answer.rate, digest, answer.conversions)
        self.facts[i] = (size.width, size.height, size.frames, *numbers, True)

    def copy(self, i: int, other: int) -> None:
        """Copies to file i the facts of the same file with another number."""
        if other in self.reasons:
            self.reasons[i] = self.reasons[other]
        self.facts[i] = self.facts[other]


def take_over(files: KnownFiles, old: Mapping[str, NDArray[Any]], max_pixels: int) -> None:
    """Fills in facts from the columns of an earlier index for files that have not changed since."""
    if not old or not len(old["path_hash"]):
        return
    order = np.argsort(old["path_hash"])
    nearest = np.searchsorted(old["path_hash"][order], files.path_hash)
    old_row = order[np.minimum(nearest, len(order) - 1)]
    same = (old["path_hash"][old_row] == files.path_hash) & (old["stats"][old_row] == files.stats).all(axis=1)
    if "region" in old:  # its size and hash are those of a region
        same &= np.diff(old["region_offsets"])[old_row] == 0
    same &= old["width"][old_row].astype(np.int64) * old["height"][old_row] <= max_pixels
    files.facts["frames"][same] = 1
    for name in set(FACTS.names or ()) & old.keys():  # an index of images only may not have all
        files.facts[name][same] = old[name][old_row[same]]
    files.facts["is_known"][same] = True


def probe_files(
    files: KnownFiles,
    journal: Path,
    *,
    max_pixels: int,
    workers: int,
    progress: Progress | None,
    prober: Prober | None = None,
    patient: float | None = None,
) -> int:
    """Probes the files without facts, on `workers` threads. journal: file for results, also those of a killed start.
    prober: `decoding.probe` if None, or `decoding.probe_quickly`. patient: seconds without progress after which
    decoding a clip fails. progress: called with (done, all). Returns the number of files probed."""
    probe = partial(_probe, prober=prober or decoding.probe, patient=patient)
    _read_journal(files, journal, max_pixels)
    unknown = np.flatnonzero(~files.facts["is_known"])
    # a file of several samples is probed once
    _, first, which = np.unique(files.path_hash[unknown], return_index=True, return_inverse=True)
    pending = np.sort(unknown[first]).tolist()
    done = len(files.paths) - len(pending)
    with columns.convert_write_errors(journal):
        notes = journal.open("a", encoding="ascii")
    with notes:
        for numbers, results in _results(files.paths, pending, max_pixels, workers, probe):
            for i, result in zip(numbers, results, strict=True):
                files.put(i, result)
            with columns.convert_write_errors(journal):
                notes.writelines(_note(files, i) for i in numbers if files.facts["is_known"][i])
                notes.flush()
            done += len(numbers)
            if progress is not None:
                progress(done, len(files.paths))
    for i, twin in zip(unknown.tolist(), unknown[first][which].tolist(), strict=True):
        if i != twin:
            files.copy(i, twin)
    return len(pending)


def _results(
    paths: Texts, pending: Sequence[int], max_pixels: int, workers: int, prober: Prober
) -> Iterator[tuple[Sequence[int], list[_Result]]]:
    # threads: Pillow and the hash release the GIL
    with ThreadPoolExecutor(workers, thread_name_prefix="look") as pool:
        waiting: deque[tuple[Sequence[int], Future[list[_Result]]]] = deque()
        try:
            for start in range(0, len(pending), _CHUNK):
                numbers = pending[start : start + _CHUNK]
                waiting.append((numbers, pool.submit(_probe_all, [paths[i] for i in numbers], max_pixels, prober)))
                if len(waiting) > 2 * workers:
                    first, results = waiting.popleft()
                    yield first, results.result()
            while waiting:
                first, results = waiting.popleft()
                yield first, results.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _probe_all(paths: Sequence[str], max_pixels: int, prober: Prober) -> list[_Result]:
    results: list[_Result] = []
    for path in paths:
        fault_injection.reach("data.decode")
        try:
            results.append(prober(Path(path), max_pixels))
        except DatasetError as error:
            results.append(error.message.removeprefix(f"{path}: "))
    return results


def _probe(path: Path, max_pixels: int, prober: Prober, patient: float | None) -> Probe:
    if clip_files.is_clip(path.name):
        moved = timeouts.Sign()
        probe = partial(clip_files.decoder().probe, path, max_pixels=max_pixels, moved=moved)
        of_clip: Probe = timeouts.run_with_timeout(patient, str(path), probe, moved)
        return of_clip
    return prober(path, max_pixels)


def _note(files: KnownFiles, i: int) -> str:
    facts = files.facts[i]
    numbers = [facts[name].item() for name in ("width", "height", "conversions")]
    numbers += [facts[name].item() for name in ("frames", "begin", "rate")] if facts["rate"] else []
    return json.dumps([files.paths[i], files.stats[i].tolist(), numbers, facts["digest"].tobytes().hex()]) + "\n"


def _read_journal(files: KnownFiles, journal: Path, max_pixels: int) -> None:
    try:
        lines = outside.read_text(journal, limit=outside.LOGGED, encoding="ascii", errors="replace").splitlines()
    except (FileNotFoundError, outside.NotRegularFile):
        return
    probes: dict[tuple[str, tuple[int, ...]], Probe] = {}
    for line in lines:
        try:
            path, stats, (width, height, conversions, *clip), digest = outside.parse_json(line)
            frames, begin, rate = clip or (1, 0.0, 0.0)
            probe = Probe(Size(width, height, frames), bytes.fromhex(digest), conversions, begin, rate)
            if len(probe.digest) == 32 and 0 < probe.size.pixels <= max_pixels:
                probes[path, tuple(stats)] = probe
        except (ValueError, TypeError):
            continue  # a line truncated by a crash
    for i in np.flatnonzero(~files.facts["is_known"]).tolist() if probes else ():
        result = probes.get((files.paths[i], tuple(files.stats[i].tolist())))
        if result is not None:
            files.put(i, result)
