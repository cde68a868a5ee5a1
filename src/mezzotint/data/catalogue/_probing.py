"""Looking at every picture or clip once, in parallel, and never twice: between the list of samples and the columns.

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

from mezzotint import draws, fault_injection, outside
from mezzotint.data.files import columns
from mezzotint.data.files.columns import Texts
from mezzotint.data.media import clip_files, decoding
from mezzotint.data.media.colour import Conversion
from mezzotint.errors import DatasetError
from mezzotint.shapes import Size

_CHUNK = 8

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Found:
    """What a look at a file told. size: as shown, with the number of frames. begin, rate: of a clip, the time of its
    first frame in seconds and its frames a second; 0 for a picture."""

    size: Size
    digest: bytes
    conversions: int
    begin: float = 0.0
    rate: float = 0.0


_Answer = Found | str


@dataclass(frozen=True, slots=True)
class Looked:
    """What is known of n files. paths: absolute. stats: (n, 3) int64, bytes, times of modification and change in
    nanoseconds. width, height: (n,) int32 after the EXIF turn. frames: (n,) int32, 1 of a picture. begin, rate: (n,)
    float64, see `Found`. digest: (n, 32) uint8. conversions: (n,) uint16. is_known: (n,). reasons: why a file cannot be
    used, by number."""

    paths: Texts
    path_hash: NDArray[np.uint64]
    stats: NDArray[np.int64]
    width: NDArray[np.int32]
    height: NDArray[np.int32]
    frames: NDArray[np.int32]
    begin: NDArray[np.float64]
    rate: NDArray[np.float64]
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
                stats[i] = decoding.stats_of(paths[i])
            except OSError:
                continue  # the look at the file will say why
        return cls(
            paths,
            np.fromiter((draws.text_key(paths[i]) for i in range(n)), np.uint64, n),
            stats,
            np.zeros(n, np.int32),
            np.zeros(n, np.int32),
            np.zeros(n, np.int32),
            np.zeros(n, np.float64),
            np.zeros(n, np.float64),
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
        self.width[i], self.height[i], self.frames[i] = answer.size.width, answer.size.height, answer.size.frames
        self.begin[i], self.rate[i], self.conversions[i] = answer.begin, answer.rate, answer.conversions
        self.digest[i] = np.frombuffer(answer.digest, dtype=np.uint8)
        self.is_known[i] = True

    def copy(self, i: int, other: int) -> None:
        """Takes over for file i what is known of the same file under another number."""
        if other in self.reasons:
            self.reasons[i] = self.reasons[other]
        for name in ("width", "height", "frames", "begin", "rate", "digest", "conversions", "is_known"):
            column = getattr(self, name)
            column[i] = column[other]


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
    looked.frames[same] = 1
    for name in ("frames", "begin", "rate"):  # which an index of pictures alone may not have
        if name in old:
            getattr(looked, name)[same] = old[name][at[same]]
    looked.is_known[same] = True


def look(looked: Looked, journal: Path, *, max_pixels: int, workers: int, progress: Progress | None) -> int:
    """Decodes the files that nothing is known of, on `workers` threads. journal: where answers are noted and those of a
    start that was killed are found. Returns how many were decoded. progress: is told (done, all)."""
    _read_journal(looked, journal, max_pixels)
    unknown = np.flatnonzero(~looked.is_known)
    # a file that several samples name is looked at once
    _, first, which = np.unique(looked.path_hash[unknown], return_index=True, return_inverse=True)
    unseen = np.sort(unknown[first]).tolist()
    done = len(looked.paths) - len(unseen)
    with columns.written(journal):
        notes = journal.open("a", encoding="ascii")
    with notes:
        for numbers, answers in _answers(looked.paths, unseen, max_pixels, workers):
            for i, answer in zip(numbers, answers, strict=True):
                looked.put(i, answer)
            with columns.written(journal):
                notes.writelines(_note(looked, i) for i in numbers if looked.is_known[i])
                notes.flush()
            done += len(numbers)
            if progress is not None:
                progress(done, len(looked.paths))
    for i, twin in zip(unknown.tolist(), unknown[first][which].tolist(), strict=True):
        if i != twin:
            looked.copy(i, twin)
    return len(unseen)


def _answers(
    paths: Texts, unseen: Sequence[int], max_pixels: int, workers: int
) -> Iterator[tuple[Sequence[int], list[_Answer]]]:
    # threads: Pillow and the hash let the interpreter go while they work
    with ThreadPoolExecutor(workers, thread_name_prefix="look") as pool:
        waiting: deque[tuple[Sequence[int], Future[list[_Answer]]]] = deque()
        try:
            for start in range(0, len(unseen), _CHUNK):
                numbers = unseen[start : start + _CHUNK]
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
        fault_injection.reach("data.decode")
        try:
            answers.append(_probed(Path(path), max_pixels))
        except DatasetError as error:
            answers.append(error.message.removeprefix(f"{path}: "))
    return answers


def _probed(path: Path, max_pixels: int) -> Found:
    """Raises DatasetError for a file that cannot be used."""
    if not clip_files.is_clip(path.name):
        picture = decoding.probe(path, max_pixels)
        return Found(picture.size, picture.digest, picture.conversions)
    clip = clip_files.decoder().probe(path, max_pixels=max_pixels)
    flags = Conversion.VARIABLE_RATE if clip.is_variable else Conversion(0)
    return Found(clip.size, clip.digest, int(flags), clip.begin, clip.rate)


def _note(looked: Looked, i: int) -> str:
    numbers: list[float] = [int(looked.width[i]), int(looked.height[i]), int(looked.conversions[i])]
    numbers += [int(looked.frames[i]), float(looked.begin[i]), float(looked.rate[i])] if looked.rate[i] else []
    return json.dumps([looked.paths[i], looked.stats[i].tolist(), numbers, looked.digest[i].tobytes().hex()]) + "\n"


def _read_journal(looked: Looked, journal: Path, max_pixels: int) -> None:
    try:
        lines = outside.read_text(journal, limit=outside.LOGGED, encoding="ascii", errors="replace").splitlines()
    except (FileNotFoundError, outside.NoPlainFile):
        return
    known: dict[tuple[str, tuple[int, ...]], Found] = {}
    for line in lines:
        try:
            path, stats, (width, height, conversions, *clip), digest = json.loads(line)
            frames, begin, rate = clip or (1, 0.0, 0.0)
            probe = Found(Size(width, height, frames), bytes.fromhex(digest), conversions, begin, rate)
            if len(probe.digest) == 32 and 0 < probe.size.pixels <= max_pixels:
                known[path, tuple(stats)] = probe
        except (ValueError, TypeError):
            continue  # a line that a crash has torn
    for i in np.flatnonzero(~looked.is_known).tolist() if known else ():
        answer = known.get((looked.paths[i], tuple(looked.stats[i].tolist())))
        if answer is not None:
            looked.put(i, answer)
