"""Captions in a sidecar file or in a file's own name, for the formats `image-folder`, `kohya` and `videofolder`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

from mezzotint.data.files.listing import Unusable
from mezzotint.data.formats.base import Item, Skipped, Source
from mezzotint.data.formats.shared.captions import captions_of, lines_of, read_text, with_captions
from mezzotint.data.formats.shared.folder_repeats import Repeated, seen_in
from mezzotint.errors import DatasetError
from mezzotint.recipe.counting import listed
from mezzotint.recipe.sections.data import CaptionSettings
from mezzotint.stages import Sample

SIDECARS = (".txt", ".caption")
"""Endings of the files that hold captions."""

_SILENT = Repeated(1, "")
"""Of a folder whose name says nothing."""

_TABLES = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
"""Captions of another format, for the message where there are none beside the pictures."""


def samples(
    source: Source, *, word: str, folder_of: Callable[[str], Repeated | None] = lambda name: None, by_name: bool = True
) -> Iterator[Item]:
    """One sample for each file of the listing that is no sidecar, in its order, or why there is none. word: what these
    files are called, "picture" or "clip". folder_of: what a file's folder says of it, if anything: its repeats, times
    those of the source, and the caption where there is no other, or with a template the word (an override `trigger`).
    by_name: whether names of files could be captions.

    Nothing in a caption is interpreted. A caption file that cannot be read (`captions.read_text`) leaves its picture
    out. Raises DatasetError E1203 (`captions.with_captions`), and E1204 for two sidecars that differ.
    """
    items = _samples(source, folder_of)
    return with_captions(items, source, lambda names: _without_captions(source, names, word, by_name))


def _samples(source: Source, folder_of: Callable[[str], Repeated | None]) -> Iterator[Item]:
    sidecars = {name for name in source.listing.names if _suffix(name) in SIDECARS}
    for path, reason in source.listing.refused:
        yield Skipped(source.prefix + path, reason)
    for name in source.listing.names:
        if name in sidecars:
            continue
        try:
            captions = _captions(source.root, name, sidecars, source.settings.captions)
        except Unusable as error:
            yield Skipped(source.prefix + name, str(error))
            continue
        folder = folder_of(name) or _SILENT
        overrides = (("trigger", folder.words),) if source.template and folder.words else ()
        if not captions and folder.words:
            captions = ("" if overrides else folder.words,)
        repeats = source.repeats * folder.repeats
        yield Sample(source.prefix + name, source.root / name, captions, repeats=repeats, overrides=overrides)


def _captions(root: Path, name: str, sidecars: Collection[str], settings: CaptionSettings) -> tuple[str, ...]:
    if settings.source != "filename":
        stem = name[: -len(_suffix(name))]
        beside = [stem + end for end in (".txt", ".TXT", ".caption", ".CAPTION") if stem + end in sidecars]
        texts = [lines_of(read_text(root / sidecar)) for sidecar in beside]
        if any(other != texts[0] for other in texts[1:]):
            raise DatasetError(
                f"{root / beside[0]} and {root / beside[1]} are captions of one picture and differ; keep one of them",
                code="E1204",
            )
        if texts:
            return captions_of(texts[0], settings)
    if settings.source == "sidecar":
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
    read_it = f"{table} lies there, which data.format=metadata reads; otherwise " if table and word == "picture" else ""
    or_names = ", or data.captions.source=filename" if by_name else ""
    if word == "picture" and by_name and (folders := seen_in(source.root)):
        read_it += f"{folders[0]} looks like one of kohya's folders, which data.format=kohya reads; otherwise "
    return (
        f"{len(names)} {word}{'s have' if len(names) > 1 else ' has'} no caption: {listed(names, 10)}; {read_it}"
        f"add {first} and so on, or set data.captions.missing=empty (or skip){or_names}"
    )
