"""Looking at every picture or clip once, in parallel, and never twice: between the list of samples and the columns.

What an earlier index knows of a file with the same name, size and times is taken over. Answers go to a journal as they
come, so that a start that is killed loses at most the last few.
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
from mezzotint.data.media import clip_files, decoding, patience
from mezzotint.data.media.decoding import Probe
from mezzotint.errors import DatasetError
from mezzotint.shapes import Size

_CHUNK = 8

Progress = Callable[[int, int], None]
LookAt = Callable[[Path, int], Probe]


_Answer = Probe | str

FACTS = np.dtype([
    ("width", "i4"), ("height", "i4"), ("frames", "i4"), ("begin", "f8"), ("rate", "f8"), ("digest", "u1", 32),
    ("conversions", "u2"), ("is_known", "?"),
])  # fmt: skip
"""What a look at a file tells, see `decoding.Probe`. width, height: after the EXIF turn. frames: 1 of a picture."""


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """What is known of n files. paths: absolute. stats: (n, 3) int64, bytes, times of modification and change in
    nanoseconds. facts: (n,) of `FACTS`. reasons: why a file cannot be used, by number."""

    paths: Texts
    path_hash: NDArray[np.uint64]
    stats: NDArray[np.int64]
    facts: NDArray[Any]
    reasons: dict[int, str]

    @classmethod
    def at(cls, paths: Texts, near: NearFiles | None = None) -> KnownFiles:
        """Nothing is known of these files yet but size and times. near: those of files on object storage."""
        n = len(paths)
        stats = np.full((n, 3), -1, dtype=np.int64)
        for i in range(n):
            with suppress(OSError):  # the look at the file will say why
                listed = near.stats(paths[i]) if near is not None else None
                stats[i] = listed or decoding.stats_of(paths[i])
        path_hash = np.fromiter((draws.text_key(paths[i]) for i in range(n)), np.uint64, n)
        return cls(paths, path_hash, stats, np.zeros(n, FACTS), {})

    def put(self, i: int, answer: _Answer) -> None:
        if isinstance(answer, str):
            self.reasons[i] = answer
            return
        size, digest = answer.size, np.frombuffer(answer.digest, dtype=np.uint8)
        numbers = (answer.begin, answer.rate, digest, answer.conversions)
        self.facts[i] = (size.width, size.height, size.frames, *numbers, True)

    def copy(self, i: int, other: int) -> None:
        """Takes over for file i what is known of the same file under another number."""
        if other in self.reasons:
            self.reasons[i] = self.reasons[other]
        self.facts[i] = self.facts[other]


def take_over(looked: KnownFiles, old: Mapping[str, NDArray[Any]], max_pixels: int) -> None:
    """Fills in what the columns of an earlier index know of files that have not changed since."""
    if not old or not len(old["path_hash"]):
        return
    order = np.argsort(old["path_hash"])
    place = np.searchsorted(old["path_hash"][order], looked.path_hash)
    at = order[np.minimum(place, len(order) - 1)]
    same = (old["path_hash"][at] == looked.path_hash) & (old["stats"][at] == looked.stats).all(axis=1)
    same &= old["width"][at].astype(np.int64) * old["height"][at] <= max_pixels
    looked.facts["frames"][same] = 1
    for name in set(FACTS.names or ()) & old.keys():  # an index of pictures alone may not have all
        looked.facts[name][same] = old[name][at[same]]
    looked.facts["is_known"][same] = True


def look(
    looked: KnownFiles,
    journal: Path,
    *,
    max_pixels: int,
    workers: int,
    progress: Progress | None,
    look_at: LookAt | None = None,
    patient: float | None = None,
) -> int:
    """Looks at the files that nothing is known of, on `workers` threads. journal: where answers are noted and those of
    a start that was killed are found. look_at: `decoding.probe` when None, or `decoding.glance`. patient:
    seconds that a clip may come no further. Returns how many files were looked at. progress: is told (done, all)."""
    probed = partial(_probed, look_at=look_at or decoding.probe, patient=patient)
    _read_journal(looked, journal, max_pixels)
    unknown = np.flatnonzero(~looked.facts["is_known"])
    # a file that several samples name is looked at once
    _, first, which = np.unique(looked.path_hash[unknown], return_index=True, return_inverse=True)
    unseen = np.sort(unknown[first]).tolist()
    done = len(looked.paths) - len(unseen)
    with columns.written(journal):
        notes = journal.open("a", encoding="ascii")
    with notes:
        for numbers, answers in _answers(looked.paths, unseen, max_pixels, workers, probed):
            for i, answer in zip(numbers, answers, strict=True):
                looked.put(i, answer)
            with columns.written(journal):
                notes.writelines(_note(looked, i) for i in numbers if looked.facts["is_known"][i])
                notes.flush()
            done += len(numbers)
            if progress is not None:
                progress(done, len(looked.paths))
    for i, twin in zip(unknown.tolist(), unknown[first][which].tolist(), strict=True):
        if i != twin:
            looked.copy(i, twin)
    return len(unseen)


def _answers(
    paths: Texts, unseen: Sequence[int], max_pixels: int, workers: int, look_at: LookAt
) -> Iterator[tuple[Sequence[int], list[_Answer]]]:
    # threads: Pillow and the hash let the interpreter go while they work
    with ThreadPoolExecutor(workers, thread_name_prefix="look") as pool:
        waiting: deque[tuple[Sequence[int], Future[list[_Answer]]]] = deque()
        try:
            for start in range(0, len(unseen), _CHUNK):
                numbers = unseen[start : start + _CHUNK]
                waiting.append((numbers, pool.submit(_probe_all, [paths[i] for i in numbers], max_pixels, look_at)))
                if len(waiting) > 2 * workers:
                    first, answers = waiting.popleft()
                    yield first, answers.result()
            while waiting:
                first, answers = waiting.popleft()
                yield first, answers.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _probe_all(paths: Sequence[str], max_pixels: int, look_at: LookAt) -> list[_Answer]:
    answers: list[_Answer] = []
    for path in paths:
        fault_injection.reach("data.decode")
        try:
            answers.append(look_at(Path(path), max_pixels))
        except DatasetError as error:
            answers.append(error.message.removeprefix(f"{path}: "))
    return answers


def _probed(path: Path, max_pixels: int, look_at: LookAt, patient: float | None) -> Probe:
    if clip_files.is_clip(path.name):
        moved = patience.Sign()
        probe = partial(clip_files.decoder().probe, path, max_pixels=max_pixels, moved=moved)
        of_clip: Probe = patience.within(patient, str(path), probe, moved)
        return of_clip
    return look_at(path, max_pixels)


def _note(looked: KnownFiles, i: int) -> str:
    facts = looked.facts[i]
    numbers = [facts[name].item() for name in ("width", "height", "conversions")]
    numbers += [facts[name].item() for name in ("frames", "begin", "rate")] if facts["rate"] else []
    return json.dumps([looked.paths[i], looked.stats[i].tolist(), numbers, facts["digest"].tobytes().hex()]) + "\n"


def _read_journal(looked: KnownFiles, journal: Path, max_pixels: int) -> None:
    try:
        lines = outside.read_text(journal, limit=outside.LOGGED, encoding="ascii", errors="replace").splitlines()
    except (FileNotFoundError, outside.NoPlainFile):
        return
    known: dict[tuple[str, tuple[int, ...]], Probe] = {}
    for line in lines:
        try:
            path, stats, (width, height, conversions, *clip), digest = outside.parse_json(line)
            frames, begin, rate = clip or (1, 0.0, 0.0)
            probe = Probe(Size(width, height, frames), bytes.fromhex(digest), conversions, begin, rate)
            if len(probe.digest) == 32 and 0 < probe.size.pixels <= max_pixels:
                known[path, tuple(stats)] = probe
        except (ValueError, TypeError):
            continue  # a line that a crash has torn
    for i in np.flatnonzero(~looked.facts["is_known"]).tolist() if known else ():
        answer = known.get((looked.paths[i], tuple(looked.stats[i].tolist())))
        if answer is not None:
            looked.put(i, answer)
