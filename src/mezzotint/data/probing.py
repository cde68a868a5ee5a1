"""Looking at every picture once, in parallel, and never twice: between the list of samples and the columns.

What an earlier index knows of a file with the same name, size and times is taken over. Answers go to a journal as they
come, so that a start that is killed loses at most the last few.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws, probes
from mezzotint.data import columns, media
from mezzotint.data.columns import Texts
from mezzotint.errors import DatasetError
from mezzotint.shapes import Size

_CHUNK = 8

Progress = Callable[[int, int], None]
_Answer = media.Probe | str


@dataclass(frozen=True, slots=True)
class Looked:
    """What is known of n files. paths: absolute. stats: (n, 3) int64, bytes, times of modification and change in
    nanoseconds. width, height: (n,) int32 after the EXIF turn. digest: (n, 32) uint8. conversions: (n,) uint16.
    is_known: (n,). reasons: why a file cannot be used, by number."""

    paths: Texts
    path_hash: NDArray[np.uint64]
    stats: NDArray[np.int64]
    width: NDArray[np.int32]
    height: NDArray[np.int32]
    digest: NDArray[np.uint8]
    conversions: NDArray[np.uint16]
    is_known: NDArray[np.bool_]
    reasons: dict[int, str]

    @classmethod
    def at(cls, paths: Texts) -> Looked:
        """Nothing is known of these files yet but size and times."""
        n = len(paths)
        stats = np.full((n, 3), -1, dtype=np.int64)
        for i in range(n):
            try:
                stats[i] = media.stats_of(paths[i])
            except OSError:
                continue  # the look at the file will say why
        return cls(
            paths,
            np.fromiter((draws.text_key(paths[i]) for i in range(n)), np.uint64, n),
            stats,
            np.zeros(n, np.int32),
            np.zeros(n, np.int32),
            np.zeros((n, 32), np.uint8),
            np.zeros(n, np.uint16),
            np.zeros(n, np.bool_),
            {},
        )

    def put(self, i: int, answer: _Answer) -> None:
        """Notes the answer for file i."""
        if isinstance(answer, str):
            self.reasons[i] = answer
            return
        self.width[i], self.height[i], self.conversions[i] = answer.size.width, answer.size.height, answer.conversions
        self.digest[i] = np.frombuffer(answer.digest, dtype=np.uint8)
        self.is_known[i] = True


def take_over(looked: Looked, old: Mapping[str, NDArray[Any]], max_pixels: int) -> None:
    """Fills in what the columns of an earlier index know of files that have not changed since."""
    if not old or not len(old["path_hash"]):
        return
    order = np.argsort(old["path_hash"])
    place = np.searchsorted(old["path_hash"][order], looked.path_hash)
    at = order[np.minimum(place, len(order) - 1)]
    same = (old["path_hash"][at] == looked.path_hash) & (old["stats"][at] == looked.stats).all(axis=1)
    same &= old["width"][at].astype(np.int64) * old["height"][at] <= max_pixels
    for name in ("width", "height", "digest", "conversions"):
        getattr(looked, name)[same] = old[name][at[same]]
    looked.is_known[same] = True


def look(looked: Looked, journal: Path, *, max_pixels: int, workers: int, progress: Progress | None) -> int:
    """Decodes the files that nothing is known of, on `workers` threads. journal: where answers are noted and those of a
    start that was killed are found. Returns how many were decoded. progress: is told (done, all)."""
    _read_journal(looked, journal, max_pixels)
    wanted = np.flatnonzero(~looked.is_known).tolist()
    done = len(looked.paths) - len(wanted)
    with columns.written(journal):
        notes = journal.open("a", encoding="ascii")
    with notes:
        for numbers, answers in _answers(looked.paths, wanted, max_pixels, workers):
            for i, answer in zip(numbers, answers, strict=True):
                looked.put(i, answer)
            with columns.written(journal):
                notes.writelines(_note(looked, i) for i in numbers if looked.is_known[i])
                notes.flush()
            done += len(numbers)
            if progress is not None:
                progress(done, len(looked.paths))
    return len(wanted)


def _answers(
    paths: Texts, wanted: Sequence[int], max_pixels: int, workers: int
) -> Iterator[tuple[Sequence[int], list[_Answer]]]:
    # threads: Pillow and the hash let the interpreter go while they work
    with ThreadPoolExecutor(workers, thread_name_prefix="look") as pool:
        waiting: deque[tuple[Sequence[int], Future[list[_Answer]]]] = deque()
        try:
            for start in range(0, len(wanted), _CHUNK):
                numbers = wanted[start : start + _CHUNK]
                waiting.append((numbers, pool.submit(_probe_all, [paths[i] for i in numbers], max_pixels)))
                if len(waiting) > 2 * workers:
                    first, answers = waiting.popleft()
                    yield first, answers.result()
            while waiting:
                first, answers = waiting.popleft()
                yield first, answers.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _probe_all(paths: Sequence[str], max_pixels: int) -> list[_Answer]:
    answers: list[_Answer] = []
    for path in paths:
        probes.reach("data.decode")
        try:
            answers.append(media.probe(Path(path), max_pixels))
        except DatasetError as error:
            answers.append(error.message.removeprefix(f"{path}: "))
    return answers


def _note(looked: Looked, i: int) -> str:
    numbers = [int(looked.width[i]), int(looked.height[i]), int(looked.conversions[i])]
    return json.dumps([looked.paths[i], looked.stats[i].tolist(), numbers, looked.digest[i].tobytes().hex()]) + "\n"


def _read_journal(looked: Looked, journal: Path, max_pixels: int) -> None:
    try:
        lines = journal.read_text("ascii", errors="replace").splitlines()
    except FileNotFoundError:
        return
    known: dict[tuple[str, tuple[int, ...]], media.Probe] = {}
    for line in lines:
        try:
            path, stats, (width, height, conversions), digest = json.loads(line)
            probe = media.Probe(Size(width, height), bytes.fromhex(digest), conversions)
            if len(probe.digest) == 32 and 0 < probe.size.pixels <= max_pixels:
                known[path, tuple(stats)] = probe
        except (ValueError, TypeError):
            continue  # a line that a crash has torn
    for i in np.flatnonzero(~looked.is_known).tolist() if known else ():
        answer = known.get((looked.paths[i], tuple(looked.stats[i].tolist())))
        if answer is not None:
            looked.put(i, answer)
