"""Folder names with repeats, as in kohya's scripts: `10_sks dog`. For the format that reads them, and for the hint if
another format does not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mezzotint.data.media import decoding

_NAME = re.compile(r"([0-9]+)(?:_(.*))?", re.DOTALL)
_LIKELY_NAME = re.compile(r"[1-9][0-9]{0,2}_.*\S.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FolderRepeats:
    """A parsed folder name. repeats: of each image in an epoch. caption: of images without one; may be empty."""

    repeats: int
    caption: str


def parse_folder_name(name: str) -> FolderRepeats | None:
    """Parses a folder's name: `10_sks dog` is 10 repeats of "sks dog", `3_fox` 3 of "fox", `5` 5 without words. None
    without a number before the first underscore."""
    match = _NAME.fullmatch(name)
    return FolderRepeats(int(match[1]), match[2] or "") if match and len(match[1]) < 10 else None


def find_folders_with_repeats(root: Path) -> list[str]:
    """The subfolders whose names probably contain repeats, sorted: one to three digits without a leading zero, words,
    and an image directly inside. Years and ordinal numbers do not match."""
    return sorted(filter(None, (_name_with_repeats(entry) for entry in _entries(root))))


def _entries(root: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(root) as entries:
            yield from entries
    except OSError:
        return


def _name_with_repeats(entry: os.DirEntry[str]) -> str | None:
    if not _LIKELY_NAME.fullmatch(entry.name) or not entry.is_dir():
        return None
    is_image = (os.path.splitext(inside.name)[1].lower() in decoding.SUFFIXES for inside in _entries(Path(entry.path)))
    return entry.name if any(is_image) else None
