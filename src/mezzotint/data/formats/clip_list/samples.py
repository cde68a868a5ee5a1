"""From Open-Sora-Plan's lists to samples: which entries are used and what they are called; with `data.clips.texts` each
line names a folder of embeddings, too. Between the files (`_lists.py`) and the index; nothing is decoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from mezzotint.data.buckets.clip_buckets import Limits
from mezzotint.data.files.listing import Listing
from mezzotint.data.files.overrides import Marked
from mezzotint.data.formats.base import Format, Skipped, Source
from mezzotint.data.formats.clip_list._lists import Entry, Line, read_annotation, read_list
from mezzotint.data.media import clip_files, decoding
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Sample
from mezzotint.weights.files import text_cache_npz

_LARGER = "_resize_1080p.mp4"


@dataclass(frozen=True, slots=True)
class ListSettings:
    """How a list is read. has_texts: three paths a line, the second the folder of embeddings (`text_embed_cache`).
    filter_nonexistent: entries whose clip, picture or embedding is not there are left out as wished; otherwise they
    count among the files that cannot be used. limits: by what entries say of their size."""

    has_texts: bool = False
    filter_nonexistent: bool = True
    limits: Limits = field(default_factory=Limits)


def named_files(path: Path, settings: ListSettings) -> Iterator[Path]:
    """Everything that a list leads to: annotations, clips, pictures, embeddings, there or not. Raises DatasetError
    E1231 and E1232."""
    for line in read_list(path, has_texts=settings.has_texts):
        yield line.annotation
        for entry in read_annotation(line.annotation):
            yield _media(line.media, entry)
            texts = _texts(line, entry)
            if texts is not None:
                yield texts


def embeddings(path: Path) -> Iterator[tuple[Path, str]]:
    """Of every entry of a list with embeddings whose clip or picture is there: the file of its embedding, there or not,
    and its caption as it is written. Raises DatasetError E1231 and E1232."""
    for line in read_list(path, has_texts=True, may_lack_texts=True):
        for entry in read_annotation(line.annotation):
            texts = _texts(line, entry)
            assert texts is not None
            if _media(line.media, entry).is_file():
                yield texts, entry.caption


def samples(
    path: Path, settings: ListSettings, *, prefix: str = "", repeats: float = 1.0
) -> Iterator[Sample | Skipped]:  # fmt: skip
    """The samples of a list file, in the order of its lines and their entries, or why there is none.

    A key is the path in the annotation; of several lines, behind the line's place in the list, from 0 (`1/a.mp4`);
    where an entry begins at a frame, `@start` behind it; where an earlier entry has the same key, `#2`, `#3`, …
    An entry that repeats key and caption of an earlier one is left out. Where it begins and its embedding are the
    sample's overrides `start` and `embedding`. Raises DatasetError E1231 and E1232.
    """
    lines = read_list(path, has_texts=settings.has_texts)
    for place, line in enumerate(lines):
        yield from _of_line(line, settings, f"{prefix}{place}/" if len(lines) > 1 else prefix, repeats)


def _of_line(line: Line, settings: ListSettings, prefix: str, repeats: float) -> Iterator[Sample | Skipped]:
    seen: dict[str, dict[str, int]] = {}
    for entry in read_annotation(line.annotation):
        where = f"{prefix}{entry.path}"
        reason = settings.limits.reason(entry.resolution) if entry.resolution else None
        if reason is not None:
            yield Skipped(where, reason, is_wanted=True)
            continue
        media, texts = _media(line.media, entry), _texts(line, entry)
        absent = next((place for place in (media, texts) if place is not None and not place.is_file()), None)
        if absent is not None and (settings.filter_nonexistent or absent == texts):
            yield Skipped(where, f"{absent} is not there", is_wanted=settings.filter_nonexistent)
            continue
        key = where if entry.start is None else f"{where}@{entry.start}"
        before = seen.setdefault(key, {})
        if entry.caption in before:
            reason = f"entry {entry.number} has path, start and caption of entry {before[entry.caption]}"
            yield Skipped(key, reason, is_wanted=False)
            continue
        before[entry.caption] = entry.number
        key = key if len(before) == 1 else f"{key}#{len(before)}"
        yield Sample(key, media, (entry.caption,), repeats=repeats, overrides=_overrides(entry, texts))


def _overrides(entry: Entry, texts: Path | None) -> tuple[tuple[str, str], ...]:
    start = () if entry.start is None else (("start", str(entry.start)),)
    return (*start, *(() if texts is None else (("embedding", Marked.of(texts).encoded),)))


def _media(folder: Path, entry: Entry) -> Path:
    """An entry's file, or the larger one beside it."""
    path = folder / entry.path
    if entry.path.endswith(".mp4"):
        larger = path.with_name(path.name.replace(".mp4", _LARGER))
        if larger.is_file():
            return larger
    return path


def _texts(line: Line, entry: Entry) -> Path | None:
    return None if line.texts is None else line.texts / text_cache_npz.name_of(os.fspath(entry.path), entry.others)


def list_files(path: Path, settings: DataSettings) -> Listing:
    """The list itself, first, and all that its entries name and is there, in their order. Names are relative to the
    list's folder where they lie below it, absolute elsewhere. Raises DatasetError E1231 and E1232 for a list or an
    annotation that cannot be read as one."""
    real = path.expanduser().resolve()
    stats: dict[str, tuple[int, int, int]] = {}
    for place in (real, *named_files(real, _settings(settings))):
        name = os.fspath(place).removeprefix(os.fspath(real.parent) + os.sep)
        try:
            stat = os.stat(place)
        except OSError:
            continue  # the samples say so
        stats[name] = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    numbers = np.array(list(stats.values()), dtype=np.int64).reshape(-1, 3)
    return Listing(real.parent, list(stats), numbers, (), {})


def read_samples(source: Source) -> Iterator[Sample | Skipped]:
    """The samples of `samples`. Raises DatasetError E1231, E1232; E1290 where clips cannot be read."""
    if any(clip_files.is_clip(name) for name in source.listing.names):
        clip_files.decoder()
    path = source.root / source.listing.names[0]
    return samples(path, _settings(source.settings), prefix=source.prefix, repeats=source.repeats)


def _settings(settings: DataSettings) -> ListSettings:
    clips = settings.clips
    return ListSettings(
        has_texts=clips.texts,
        filter_nonexistent=clips.missing == "skip",
        limits=Limits(clips.min_size, clips.max_size, clips.max_aspect),
    )


FORMAT = Format(
    read_samples=read_samples,
    suffixes=clip_files.SUFFIXES | decoding.SUFFIXES,  # pictures for single frames
    list_files=list_files,
)
