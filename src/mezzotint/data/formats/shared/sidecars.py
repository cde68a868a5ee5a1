"""Captions in sidecar files or file names, for the formats `image-folder`, `kohya` and `videofolder`."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from mezzotint.data.files.listing import Unusable
from mezzotint.data.files.remembered_texts import RememberedTexts, TextFiles
from mezzotint.data.formats.base import Item, Skipped, Source
from mezzotint.data.formats.shared.captions import captions_of, lines_of, read_text, with_captions
from mezzotint.data.formats.shared.folder_repeats import FolderRepeats, find_folders_with_repeats
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import format_names
from mezzotint.settings.sections.data import CaptionSettings
from mezzotint.stages import Sample

SIDECARS = (".txt", ".caption")
"""Extensions of caption files."""

_NUM_THREADS = 8
"""Number of threads that read caption files, which mostly wait for the disk or the network."""

CHUNK = 64
"""Names of caption files that are read together, by one thread."""

_NO_REPEATS = FolderRepeats(1, "")
"""For a folder whose name has no repeats."""

_TABLES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
"""Caption files of another format, for the message if there are no sidecars."""


def samples(
    source: Source,
    *,
    word: str,
    folder_of: Callable[[str], FolderRepeats | None] = lambda name: None,
    by_name: bool = True,
) -> Iterator[Item]:
    """One sample for each file of the listing that is not a sidecar, in order, or the reason why it is skipped. word:
    the name for these files in messages, "image" or "clip". folder_of: gives the repeats of a file's folder, which
    are multiplied by those of the source, and the caption of files without one, or with a template the trigger word (an
    override `trigger`). by_name: whether file names could be captions.

    Captions are not interpreted. A file whose caption file cannot be read (`captions.read_text`) is skipped. Raises
    DatasetError E1203 (`captions.with_captions`), and E1204 for two different sidecars.
    """
    items = _samples(source, folder_of)
    return with_captions(items, source, lambda names: _without_captions(source, names, word, by_name))


def _samples(source: Source, folder_of: Callable[[str], FolderRepeats | None]) -> Iterator[Item]:
    names, captions = source.listing.names, _Captions.of(source)
    for path, reason in source.listing.refused:
        yield Skipped(source.prefix + path, reason)
    sidecars = captions.files.numbers
    for name, answer in captions.of_all([name for name in names if name not in sidecars]):
        if isinstance(answer, Unusable):
            yield Skipped(source.prefix + name, str(answer))
            continue
        folder = folder_of(name) or _NO_REPEATS
        overrides = (("trigger", folder.caption),) if source.settings.captions.full_template and folder.caption else ()
        if not answer and folder.caption:
            answer = ("" if overrides else folder.caption,)
        repeats = source.repeats * folder.repeats
        yield Sample(source.prefix + name, source.root / name, answer, repeats=repeats, overrides=overrides)


@dataclass(frozen=True, slots=True)
class _Captions:
    """Reads the captions of a source. files: its sidecars. refused: reasons why others cannot be read, by name."""

    root: Path
    settings: CaptionSettings
    files: TextFiles
    refused: Mapping[str, str]

    @classmethod
    def of(cls, source: Source) -> _Captions:
        names = source.listing.names
        numbers = [number for number, name in enumerate(names) if _suffix(name) in SIDECARS]
        memory = source.texts or RememberedTexts()
        files = memory.files(source.root, [names[i] for i in numbers], source.listing.stats[numbers])
        refused = {name: reason for name, reason in source.listing.refused if _suffix(name) in SIDECARS}
        return cls(source.root, source.settings.captions, files, refused)

    def of_all(self, names: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...] | Unusable]]:
        """Each name with its captions, or the reason why they cannot be read, in order; read ahead in threads. Raises
        DatasetError E1204."""
        chunks = (names[i : i + CHUNK] for i in range(0, len(names), CHUNK))
        with ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="captions") as pool:
            waiting: deque[Future[list[tuple[str, tuple[str, ...] | Unusable]]]] = deque()
            try:
                for chunk in chunks:
                    waiting.append(pool.submit(self._of_chunk, chunk))
                    if len(waiting) > 2 * _NUM_THREADS:
                        yield from waiting.popleft().result()
                while waiting:
                    yield from waiting.popleft().result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def _of_chunk(self, names: Sequence[str]) -> list[tuple[str, tuple[str, ...] | Unusable]]:
        answers: list[tuple[str, tuple[str, ...] | Unusable]] = []
        for name in names:
            try:
                answers.append((name, self._of_one(name)))
            except Unusable as error:
                answers.append((name, error))
        return answers

    def _of_one(self, name: str) -> tuple[str, ...]:
        if self.settings.source != "filename":
            stem = name[: -len(_suffix(name))]
            read = SIDECARS if self.settings.extension == "any" else (self.settings.extension,)
            ends = [end for extension in read for end in (extension, extension.upper())]
            for name_beside in (stem + end for end in ends if stem + end in self.refused):
                raise Unusable(f"its caption {PurePosixPath(name_beside).name} is {self.refused[name_beside]}")
            beside = [stem + end for end in ends if stem + end in self.files.numbers]
            texts = [lines_of(self.files.text(name, partial(read_text, self.root / name))) for name in beside]
            if any(other != texts[0] for other in texts[1:]):
                raise DatasetError(
                    f"{self.root / beside[0]} and {self.root / beside[1]} are different captions of one image; keep "
                    "one of them",
                    code="E1204",
                )
            if texts:
                return captions_of(texts[0], self.settings)
        if self.settings.source == "sidecar":
            return ()
        caption = " ".join(PurePosixPath(name).stem.replace("_", " ").split())
        if any("\ud800" <= letter <= "\udfff" for letter in caption):
            raise Unusable("its name is not UTF-8, so it cannot be a caption")
        return (caption,)


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _without_captions(source: Source, names: Sequence[str], word: str, by_name: bool) -> str:
    first = PurePosixPath(names[0]).with_suffix(".txt").name
    table = next((n for n in _TABLES if (source.root / n).is_file()), None)
    hint = f"data.format=metadata reads the {table} in this folder; otherwise " if table and word == "image" else ""
    or_names = ", or data.captions.source=filename" if by_name else ""
    if word == "image" and by_name and (folders := find_folders_with_repeats(source.root)):
        hint += f"{folders[0]} looks like one of kohya's folders, which data.format=kohya reads; otherwise "
    return (
        f"{len(names)} {word}{'s have' if len(names) > 1 else ' has'} no caption: {format_names(names, 10)}; {hint}"
        f"add {first} and so on, or set data.captions.missing=empty (or skip){or_names}"
    )
