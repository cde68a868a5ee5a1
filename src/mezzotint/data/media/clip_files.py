"""Recognises clips by file name, and imports the decoder, which needs an extra.

Listing files does not need PyAV; opening them does, and without it raises an error that names the package.
"""

from __future__ import annotations

import os
from types import ModuleType

from mezzotint.errors import DatasetError

PREPROCESSING = 1
"""The version of everything that decides the pixels of a clip (`_clips.py`, `clip_transforms.py`, `clip_visits.py`):
part of every cache address. Increment it when a pixel changes."""

_ENDINGS = "mp4 m4v mov mkv webm avi mpg mpeg ts m2ts mts flv ogv wmv"
SUFFIXES = frozenset(f".{ending}" for ending in _ENDINGS.split())
"""Extensions of clips, lower case."""


def is_clip(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES


def decoder() -> ModuleType:
    """Imports `_clips`. Raises DatasetError E1290 if PyAV is not installed."""
    try:
        from mezzotint.data.media import _clips
    except ImportError as error:
        raise DatasetError(
            f"reading clips needs the package {error.name}, which is not installed: pip install 'mezzotint[video]'",
            code="E1290",
        ) from error
    return _clips
