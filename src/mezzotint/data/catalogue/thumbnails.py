"""Thumbnails of the images of a data set, created on demand and stored in its memo by the hash of the image file."""

from __future__ import annotations

import io

from mezzotint.data.catalogue import likeness
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.errors import MezzotintError
from mezzotint.settings.sections.data import DataSettings

SIDE = 320
"""Pixels of the longer side."""

_LARGE_SIDE = 2048


def thumbnail(catalogue: Catalogue, row: int, settings: DataSettings) -> bytes | None:
    """A WebP of the whole image of a row, of a clip of its first frame; None for one that cannot be read any more."""
    content = catalogue.memo.get("thumbnail", _key(catalogue, row))
    if content is None and (content := _webp(catalogue, row, settings, SIDE, quality=80)) is not None:
        catalogue.memo.put("thumbnail", _key(catalogue, row), content)
    return content


def preview_image(
    catalogue: Catalogue, row: int, settings: DataSettings, *, is_whole: bool = False
) -> bytes | None:  # fmt: skip
    """A large WebP of the image of a row, which is not stored. is_whole: without its crop and rotation. None as
    `thumbnail`."""
    return _webp(catalogue, row, settings, _LARGE_SIDE, quality=90, is_whole=is_whole)


def _webp(
    catalogue: Catalogue, row: int, settings: DataSettings, side: int, *, quality: int, is_whole: bool = False
) -> bytes | None:  # fmt: skip
    try:
        image = likeness.image_of(catalogue, row, settings, side, is_whole=is_whole)
    except (MezzotintError, OSError):
        return None
    content = io.BytesIO()
    image.save(content, "WEBP", quality=quality)
    return content.getvalue()


def _key(catalogue: Catalogue, row: int) -> tuple[int, bytes]:
    return SIDE, catalogue.digest[row].tobytes()
