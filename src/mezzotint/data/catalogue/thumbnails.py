"""Small copies of the pictures of a data set, made when they are asked for and kept beside the data indexes, by the
hash of their files: a file that changes has another."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mezzotint import durable, outside
from mezzotint.data.catalogue import likeness
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.errors import MezzotintError, StorageError
from mezzotint.recipe.sections.data import DataSettings

SIDE = 320
"""Pixels of the longer side."""

_FOLDER = "thumbnails"
_LARGE_SIDE = 2048
_LARGE = 2_000_000


def thumbnail(catalogue: Catalogue, row: int, settings: DataSettings) -> bytes | None:
    """A WebP of the whole picture of a row, of a clip of its first frame; None for one that cannot be read any more."""
    there = kept(catalogue, row, settings)
    if there is not None:
        return there
    place, content = _place(catalogue, row, settings), _webp(catalogue, row, settings, SIDE, quality=80)
    if content is None:
        return None
    with contextlib.suppress(StorageError, OSError):  # where nothing can be kept it is made again
        place.parent.mkdir(parents=True, exist_ok=True)
        durable.sweep(place.parent, place.name)
        with durable.replacing(place, durably=False) as aside:
            aside.write_bytes(content)
    return content


def kept(catalogue: Catalogue, row: int, settings: DataSettings) -> bytes | None:
    """The small copy of a row that was made before; None without one."""
    with contextlib.suppress(OSError):
        return outside.read_bytes(_place(catalogue, row, settings), limit=_LARGE)
    return None


def large(catalogue: Catalogue, row: int, settings: DataSettings) -> bytes | None:
    """A WebP of the whole picture of a row, large enough to be looked at; it is not kept. None as `thumbnail`."""
    return _webp(catalogue, row, settings, _LARGE_SIDE, quality=90)


def _webp(catalogue: Catalogue, row: int, settings: DataSettings, side: int, *, quality: int) -> bytes | None:
    try:
        image = likeness.image_of(catalogue, row, settings, side)
    except (MezzotintError, OSError):
        return None
    content = io.BytesIO()
    image.save(content, "WEBP", quality=quality)
    return content.getvalue()


def _place(catalogue: Catalogue, row: int, settings: DataSettings) -> Path:
    digest = catalogue.digest[row].tobytes().hex()
    place: Path = settings.cache.path.expanduser() / _FOLDER / digest[:2] / f"{digest}.webp"
    return place


def shades_at(path: Path) -> NDArray[np.uint8] | None:
    """The shades (`likeness.shades_of`) of the picture of a file; None for what is no picture."""
    try:
        with outside.open_plain(path) as file, Image.open(io.BytesIO(file.read(50_000_000))) as image:
            return likeness.shades_of(image)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
