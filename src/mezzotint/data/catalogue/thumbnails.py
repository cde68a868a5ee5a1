"""Small copies of the pictures of a data set, made when they are asked for and kept beside the data indexes, by the
hash of their files: a file that changes has another."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from mezzotint import durable, outside
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.media import clip_files, decoding
from mezzotint.errors import MezzotintError, StorageError
from mezzotint.recipe.sections.data import DataSettings

SIDE = 320
"""Pixels of the longer side."""

_FOLDER = "thumbnails"
_LARGE = 2_000_000


def thumbnail(catalogue: Catalogue, row: int, settings: DataSettings) -> bytes | None:
    """A WebP of the whole picture of a row, of a clip of its first frame; None for one that cannot be read any more."""
    digest = catalogue.digest[row].tobytes().hex()
    place = settings.cache.path.expanduser() / _FOLDER / digest[:2] / f"{digest}.webp"
    with contextlib.suppress(OSError):
        return outside.read_bytes(place, limit=_LARGE)
    try:
        pixels = _whole(catalogue, row, settings)
    except (MezzotintError, OSError):
        return None
    image = Image.fromarray(pixels)
    image.thumbnail((SIDE, SIDE))
    content = io.BytesIO()
    image.save(content, "WEBP", quality=80)
    with contextlib.suppress(StorageError, OSError):  # where nothing can be kept it is made again
        place.parent.mkdir(parents=True, exist_ok=True)
        with durable.replacing(place, durably=False) as aside:
            aside.write_bytes(content.getvalue())
    return content.getvalue()


def _whole(catalogue: Catalogue, row: int, settings: DataSettings) -> NDArray[np.uint8]:
    path = catalogue.path(row)
    if int(catalogue.frames[row]) == 1 and not clip_files.is_clip(os.fspath(path)):
        return decoding.whole(path, background=settings.background, max_pixels=settings.max_pixels)
    frames: NDArray[np.uint8] = clip_files.decoder().frames(path, [float(catalogue.begin[row])])
    return np.ascontiguousarray(frames[0].transpose(1, 2, 0))


def signature(content: bytes) -> NDArray[np.uint8]:
    """8×8×3 shades of a picture."""
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB").resize((8, 8), Image.Resampling.BOX), np.uint8)


def signature_of(path: Path) -> NDArray[np.uint8] | None:
    """Those of a file; None for what is no picture."""
    try:
        with outside.open_plain(path) as file:
            return signature(file.read(50_000_000))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def nearest(vectors: NDArray[Any], own: NDArray[Any], count: int = 4) -> Sequence[tuple[int, float]]:
    """The rows that are nearest to a vector of the same kind, with the root of the mean squared difference: shades of
    pictures, or what an encoder makes of them."""
    apart = vectors.reshape(len(vectors), -1).astype(np.float32) - own.reshape(1, -1).astype(np.float32)
    distance = np.sqrt((apart**2).mean(1))
    return [(int(row), round(float(distance[row]), 4)) for row in np.argsort(distance, kind="stable")[:count]]
