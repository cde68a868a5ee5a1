"""From Open-Sora-Plan's lists to samples: which entries are used, what they are called, which pictures go with which
clip. Between the files (`_clip_lists.py`) and the index; nothing is decoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mezzotint.data.formats._clip_lists import Entry, Line, read_annotation, read_list
from mezzotint.data.formats.base import Skipped
from mezzotint.shapes import Size
from mezzotint.stages import Sample
from mezzotint.weights import text_cache_npz

_LARGER = "_resize_1080p.mp4"


@dataclass(frozen=True, slots=True)
class Limits:
    """Which sizes are used, in pixels as shown. min_side: of the shorter side. max_side: of the longer. max_aspect: the
    longer over the shorter. None lets all pass."""

    min_side: int | None = None
    max_side: int | None = None
    max_aspect: float | None = None

    def reason(self, size: Size) -> str | None:
        """Why a clip or picture of this size is left out, or None."""
        short, long = sorted((size.width, size.height))
        shown = f"{size.width}×{size.height}"
        if self.min_side is not None and short < self.min_side:
            return f"{shown}: its shorter side is below {self.min_side}"
        if self.max_side is not None and long > self.max_side:
            return f"{shown}: its longer side is above {self.max_side}"
        if self.max_aspect is not None and long > self.max_aspect * short:
            return f"{shown}: its sides are more than {self.max_aspect:g} to 1"
        return None


@dataclass(frozen=True, slots=True)
class ListSettings:
    """How a list is read. has_texts: three paths a line, the second the folder of embeddings (`text_embed_cache`).
    filter_nonexistent: entries whose clip, picture or embedding is not there are left out as wished; otherwise they
    count among the files that cannot be used. limits: by what entries say of their size."""

    has_texts: bool = False
    filter_nonexistent: bool = True
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True)
class ListedSample:
    """A sample and what else its entry says. start: its first frame, None to draw one. texts: its embedding."""

    sample: Sample
    start: int | None = None
    texts: Path | None = None


def read_samples(
    path: Path, settings: ListSettings, *, prefix: str = "", repeats: float = 1.0
) -> Iterator[ListedSample | Skipped]:
    """The samples of a list file, in the order of its lines and their entries, or why there is none.

    A key is the path in the annotation; of several lines, behind the line's place in the list, from 0 (`1/a.mp4`);
    where an entry begins at a frame, `@start` behind it; where an earlier entry has the same key, `#2`, `#3`, …
    An entry that repeats key and caption of an earlier one is left out. Raises DatasetError E1231 and E1232.
    """
    lines = read_list(path, has_texts=settings.has_texts)
    for place, line in enumerate(lines):
        yield from _of_line(line, settings, f"{prefix}{place}/" if len(lines) > 1 else prefix, repeats)


def _of_line(line: Line, settings: ListSettings, prefix: str, repeats: float) -> Iterator[ListedSample | Skipped]:
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
        yield ListedSample(Sample(key, media, (entry.caption,), repeats=repeats), entry.start, texts)


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


def groups_of_stills(num_pictures: int, per_sample: int) -> tuple[range, ...]:
    """The pictures that are trained together beside one clip (`use_image_num`), by number: consecutive groups of
    `per_sample`. The last group is left out, full or not, as in the reference; a list of just one group has none."""
    assert per_sample > 0
    ends = range(per_sample, num_pictures + per_sample, per_sample)
    return tuple(range(end - per_sample, end) for end in ends)[:-1]


def stills_beside(clip: int, groups: Sequence[range]) -> range:
    """The group of pictures beside the clip of a number: groups in turn, from the first on again when there are more
    clips."""
    return groups[clip % len(groups)]
