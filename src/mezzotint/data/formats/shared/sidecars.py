"""Captions in a sidecar file or in a file's own name, for the formats `image-folder`, `kohya` and `videofolder`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

from mezzotint.data.files.listing import Unusable
from mezzotint.data.formats.base import Skipped, Source
from mezzotint.data.formats.shared.folder_repeats import Repeated, seen_in
from mezzotint.errors import DatasetError
from mezzotint.recipe.sections.data import CaptionSettings
from mezzotint.stages import Sample

SIDECARS = (".txt", ".caption")
"""Endings of the files that hold captions."""

MAX_CAPTION_BYTES = 1_000_000
_SILENT = Repeated(1, "")
"""Of a folder whose name says nothing."""

_TABLES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
"""Captions of another format, for the message where there are none beside the pictures."""


def samples(
    source: Source,
    *,
    word: str,
    folder_of: Callable[[str], Repeated | None] = lambda name: None,
    by_name: bool = True,
) -> Iterator[Sample | Skipped]:
    """One sample for each file of the listing that is no sidecar, in its order, or why there is none. word: what these
    files are called, "picture" or "clip". folder_of: what a file's folder says of it, if anything: its repeats, times
    those of the source, and the caption where there is no other. by_name: whether names of files could be captions.

    A caption file is UTF-8, with or without byte order mark. Its lines end in LF, CRLF or CR, are stripped, and empty
    ones left out; `captions.lines` says what becomes of the rest (`of_lines`). Nothing in a caption is interpreted. A
    file that is not UTF-8 or holds NUL leaves its picture out. Raises DatasetError E1203 when captions are missing and
    `captions.missing=error`, after all files were looked at, and E1204 for two sidecars that differ.
    """
    settings = source.settings.captions
    sidecars = {name for name in source.listing.names if _suffix(name) in SIDECARS}
    missing: list[str] = []
    num_missing = 0
    for path, reason in source.listing.refused:
        yield Skipped(source.prefix + path, reason)
    for name in source.listing.names:
        if _suffix(name) in SIDECARS:
            continue
        try:
            captions = _captions(source.root, name, sidecars, settings)
        except Unusable as error:
            yield Skipped(source.prefix + name, str(error))
            continue
        folder = folder_of(name) or _SILENT
        if captions is None and folder.words:
            captions = (folder.words,)
        if captions is None and settings.missing == "skip":
            yield Skipped(source.prefix + name, "no caption", is_wanted=True)
            continue
        if captions is None and settings.missing == "error":
            num_missing += 1
            if len(missing) < 10:
                missing.append(name)
            continue
        repeats = source.repeats * folder.repeats
        yield Sample(source.prefix + name, source.root / name, captions or ("",), repeats=repeats)
    if missing:
        raise DatasetError(_without_captions(source, missing, num_missing, word, by_name), code="E1203")


def _captions(root: Path, name: str, sidecars: Collection[str], settings: CaptionSettings) -> tuple[str, ...] | None:
    if settings.source != "filename":
        stem = name[: -len(_suffix(name))]
        beside = [stem + end for end in (".txt", ".TXT", ".caption", ".CAPTION") if stem + end in sidecars]
        if beside:
            lines = [_lines(root / sidecar) for sidecar in beside]
            if any(other != lines[0] for other in lines[1:]):
                raise DatasetError(
                    f"{root / beside[0]} and {root / beside[1]} are captions of one picture and differ; keep one of "
                    "them",
                    code="E1204",
                )
            return of_lines(lines[0], settings)
    if settings.source == "sidecar":
        return None
    caption = " ".join(PurePosixPath(name).stem.replace("_", " ").split())
    if not caption.isprintable() and _is_undecodable(caption):
        raise Unusable("its name is not UTF-8, so it cannot be a caption")
    return (caption,)


def of_lines(lines: Sequence[str], settings: CaptionSettings) -> tuple[str, ...]:
    """The captions that the lines of one text make, by `captions.lines`; without a line, the empty one."""
    match settings.lines:
        case "join":
            return (" ".join(lines),)
        case "first":
            return (lines[0] if lines else "",)
        case "choose":
            return tuple(lines) or ("",)
        case _:
            raise AssertionError(settings.lines)


def _lines(path: Path) -> tuple[str, ...]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as file:
            data = file.read(MAX_CAPTION_BYTES + 1)
    except OSError as error:
        raise Unusable(f"caption {path.name}: {error.strerror}") from error
    if len(data) > MAX_CAPTION_BYTES:
        raise Unusable(f"caption {path.name}: more than {MAX_CAPTION_BYTES:,} bytes")
    if b"\0" in data:
        raise Unusable(f"caption {path.name}: holds NUL, so it is not text; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unusable(f"caption {path.name}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    return tuple(line for line in map(str.strip, re.split(r"\r\n|\r|\n", text)) if line)


def _is_undecodable(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _without_captions(source: Source, names: list[str], count: int, word: str, by_name: bool) -> str:
    shown = ", ".join(names) + (f" and {count - len(names)} more" if count > len(names) else "")
    first = PurePosixPath(names[0]).with_suffix(".txt").name
    table = next((n for n in _TABLES if (source.root / n).is_file()), None)
    read_it = f"{table} lies there, which data.format=metadata reads; otherwise " if table and word == "picture" else ""
    or_names = ", or data.captions.source=filename" if by_name else ""
    if word == "picture" and by_name and (folders := seen_in(source.root)):
        read_it += f"{folders[0]} looks like one of kohya's folders, which data.format=kohya reads; otherwise "
    return (
        f"{source.root}: {count} {word}{'s have' if count > 1 else ' has'} no caption: {shown}; {read_it}"
        f"add {first} and so on, or set data.captions.missing=empty (or skip){or_names}"
    )
