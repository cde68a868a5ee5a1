"""Names of folders that say how often their pictures are seen, as kohya's scripts have them: `10_sks dog`. For the
format that reads them, and for the hint where another format does not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mezzotint.data.media import decoding

_NAME = re.compile(r"([0-9]+)(?:_(.*))?", re.DOTALL)
_MEANT = re.compile(r"[1-9][0-9]{0,2}_.*\S.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Repeated:
    """What a folder's name says. repeats: of each picture in an epoch. words: the caption of pictures without one; may
    be empty."""

    repeats: int
    words: str


def repeated(name: str) -> Repeated | None:
    """What a folder's name says: `10_sks dog` ten times "sks dog", `3_fox` three times "fox", `5` five times nothing.
    None without a number before the first underscore."""
    match = _NAME.fullmatch(name)
    return Repeated(int(match[1]), match[2] or "") if match and len(match[1]) < 10 else None


def seen_in(root: Path) -> list[str]:
    """The folders directly in a folder whose names are probably meant so, sorted: one to three digits without a leading
    nought, words, and a picture directly inside. Years and places in an order are not among them."""
    return sorted(filter(None, (_meant(entry) for entry in _entries(root))))


def _entries(root: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(root) as entries:
            yield from entries
    except OSError:
        return


def _meant(entry: os.DirEntry[str]) -> str | None:
    if not _MEANT.fullmatch(entry.name) or not entry.is_dir():
        return None
    is_picture = (
        os.path.splitext(inside.name)[1].lower() in decoding.SUFFIXES for inside in _entries(Path(entry.path))
    )
    return entry.name if any(is_picture) else None
