"""What is taken for a clip, told by its name alone, and the way to the decoder, which is an extra of its own.

Whoever lists files needs no PyAV; whoever opens them gets it here, or the sentence that says what to install.
"""

from __future__ import annotations

import os
from types import ModuleType

from mezzotint.errors import DatasetError

PREPROCESSING = 1
"""The version of everything that decides the pixels of a clip (`_clips.py`, `clip_transforms.py`, `clip_visits.py`):
part of every cache address. Raise it when a pixel changes."""

_ENDINGS = "mp4 m4v mov mkv webm avi mpg mpeg ts m2ts mts flv ogv wmv"
SUFFIXES = frozenset(f".{ending}" for ending in _ENDINGS.split())
"""Endings of files that are taken for clips, lower case."""


def is_clip(name: str) -> bool:
    return os.path.splitext(name)[1].lower() in SUFFIXES


def decoder() -> ModuleType:
    """`_clips`. Raises DatasetError E1290 where PyAV is not installed."""
    try:
        from mezzotint.data.media import _clips
    except ImportError as error:
        raise DatasetError(
            f"clips are read by the package {error.name}, which is not installed: pip install 'mezzotint[video]'",
            code="E1290",
        ) from error
    return _clips
