"""Small copies of the pictures of a data set, made when they are asked for and kept beside the data indexes, by the
hash of their files: a file that changes has another."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from PIL import Image

from mezzotint import durable, outside
from mezzotint.data.catalogue import likeness
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.catalogue.likeness import Looks
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
        image = likeness.image_of(catalogue, row, settings, SIDE)
    except (MezzotintError, OSError):
        return None
    content = io.BytesIO()
    image.save(content, "WEBP", quality=80)
    with contextlib.suppress(StorageError, OSError):  # where nothing can be kept it is made again
        place.parent.mkdir(parents=True, exist_ok=True)
        with durable.replacing(place, durably=False) as aside:
            aside.write_bytes(content.getvalue())
    return content.getvalue()


def looks_of(path: Path) -> Looks | None:
    """How the picture of a file looks; None for what is no picture."""
    looks = Looks.empty(1)
    try:
        with outside.open_plain(path) as file, Image.open(io.BytesIO(file.read(50_000_000))) as image:
            looks.put(0, image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    return looks
