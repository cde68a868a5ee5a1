"""Captions that are empty, many, truncated, or contradicted by a mirrored image."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.catalogue.data_report import readable
from mezzotint.data.findings.finding import Finding, examples_of
from mezzotint.settings.counting import format_count
from mezzotint.settings.sections.captions import CaptionSettings
from mezzotint.settings.sections.data import DataSettings

MANY_CAPTIONS = 10
"""A sample with this many captions probably has some that are not meant as captions."""

_READ = 20_000
"""Maximum number of samples whose captions are searched for directions."""

_WIDTH = 90
_DIRECTION = re.compile(
    r"\b(left|right|(left|right)-?(wards?|hand|ward|facing|most)|(anti-?|counter-?)?clockwise"
    r"|(east|west)(wards?|bound)?)\b",
    re.IGNORECASE,
)
"""Words that mirroring makes wrong. Meaning is ignored: "right now" matches."""


@dataclass(frozen=True, slots=True)
class LostWords:
    """Captions that a text encoder truncates. tokens: number of tokens that the longest caption of a row loses, by row.
    cut: number of truncated captions among those checked. looked_at: captions checked. long: captions that may be too
    long. all: captions in the data set."""

    tokens: Mapping[int, int]
    cut: int
    looked_at: int
    long: int
    all: int


def of_captions(catalogue: Catalogue, rows: NDArray[np.int32]) -> Iterator[Finding]:
    """Samples with an empty caption, and with very many."""
    empty = np.intersect1d(catalogue.with_empty_captions(), rows).tolist()
    if empty:
        yield Finding(
            "empty-captions", "look", len(empty), f"{format_count(len(empty), 'sample')} with an empty caption",
            "write one, or skip them with data.captions.missing=skip; to train a share without text, use "
            "data.captions.dropout",
            examples_of(empty, map(catalogue.label, empty)),
        )  # fmt: skip
    counts = catalogue.caption_counts()
    chosen = np.intersect1d(np.flatnonzero(counts >= MANY_CAPTIONS), rows)
    many = chosen[np.argsort(-counts[chosen], kind="stable")].tolist()
    if many:
        yield Finding(
            "many-captions", "look", len(many),
            f"{format_count(len(many), 'sample')} with {MANY_CAPTIONS} captions or more, of which each visit selects "
            "one",
            "with data.captions.lines=random each line of a caption file is a caption; for translations set "
            "data.captions.lines=first, for one text over several lines data.captions.lines=join",
            examples_of(many, (
                f"{catalogue.label(row)} ({counts[row]}, the last {readable(catalogue.captions(row)[-1][:40])!r})"
                for row in many
            )),
        )  # fmt: skip


def of_directions(catalogue: Catalogue, rows: NDArray[np.int32], settings: DataSettings) -> Iterator[Finding]:
    """Captions with a direction, of samples that may be mirrored. Checks the first `_READ` samples only."""
    read = rows[:_READ]
    flip = catalogue.overrides.flip[read]
    mirrored = read[np.where(np.isnan(flip), settings.flip, flip) > 0].tolist()
    wrong = [row for row in mirrored if any(map(_DIRECTION.search, catalogue.captions(row)))]
    if wrong:
        among = f" of the first {_READ:,}" if len(rows) > _READ else ""
        word = "clip" if settings.has_clips else "image"
        yield Finding(
            "mirrored-words", "mend", len(wrong),
            f"{format_count(len(wrong), word)}{among} with left, right, a turn or a direction of motion in the "
            "caption, and "
            f"data.flip={settings.flip:g} mirrors {word}s, which makes the words wrong",
            "set data.flip=0, or remove the words",
            examples_of(wrong, (
                f"{catalogue.label(row)}: {shorten(' | '.join(catalogue.captions(row)))}" for row in wrong
            )),
        )  # fmt: skip


def of_lost_words(catalogue: Catalogue, lost: LostWords | None, settings: CaptionSettings) -> Iterator[Finding]:
    """Captions longer than the text encoder reads."""
    if lost is None or not lost.cut:
        return
    count, about = lost.cut, ""
    if lost.looked_at != lost.long:
        count = round(lost.cut * lost.long / lost.looked_at)
        about = f" (estimated from {lost.looked_at:,} of the {lost.long:,} longer ones)"
    rows = sorted(lost.tokens, key=lambda row: (-lost.tokens[row], row))
    first = "; for caption files with several lines, such as translations, set data.captions.lines=first"
    yield Finding(
        "cut-captions", "look", count,
        f"{format_count(count, 'caption')} of {lost.all:,} {'is' if count == 1 else 'are'} longer than the text "
        f"encoder reads{about}, and the end is lost",
        f"put what matters first, or shorten them{first if settings.lines == 'join' else ''}",
        examples_of(rows, (f"{catalogue.label(row)} ({format_count(lost.tokens[row], 'token')} lost)" for row in rows)),
    )  # fmt: skip


def shorten(text: str) -> str:
    """A caption in at most 90 characters of one line."""
    text = readable(" ".join(text.split()))
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
