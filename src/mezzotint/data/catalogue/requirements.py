"""What a recipe needs of a data set: masks (`data.mask`), captions that have its new words (`model.tokens`)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.files.masks import ENDING
from mezzotint.data.media.colour import Conversion
from mezzotint.errors import DatasetError, RecipeError
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.sections.data import DataSettings


def count_masks(catalogue: Catalogue, rows: ArrayLike, settings: DataSettings) -> int:
    """How many of some rows have a mask (`data.cache.entries.has_mask`)."""
    chosen = np.asarray(rows, dtype=np.int64)
    if settings.mask.source == "alpha":
        return int(np.count_nonzero(catalogue.conversions[chosen] & np.uint16(Conversion.ALPHA)))
    digests = catalogue.overrides.mask_digest
    return 0 if digests is None or not settings.mask.is_on else int(digests[chosen].any(axis=1).sum())


def require_masks(catalogue: Catalogue, settings: DataSettings) -> None:
    """Raises DatasetError E1475 where masks are asked for and no picture has one."""
    if not settings.mask.is_on or count_masks(catalogue, np.arange(len(catalogue)), settings):
        return
    where = ", ".join(map(str, settings.mask.path or catalogue.roots))
    if settings.mask.source == "alpha":
        what, remedy = "no picture has a transparent place", "save pictures with their opacity (PNG, WebP)"
    elif settings.mask.path:
        what, remedy = "no file there has the name of a picture", "name each mask as its picture, with any ending"
    else:
        spec = format_spec(settings.format)
        places = [f"NAME{ENDING}.png beside it"] if spec.reads_masks else []
        places += [spec.own_masks] if spec.own_masks else []
        what = f"no picture NAME has a mask ({', or '.join(places)})"
        remedy = "put masks there" + (", or set data.mask.path" if spec.reads_masks else "")
    raise DatasetError(
        f"{where}: data.mask.source={settings.mask.source}, and {what}; {remedy}, or leave data.mask out", code="E1475"
    )


def require_words(catalogue: Catalogue, rows: Iterable[int], words: Iterable[str]) -> None:
    """Raises RecipeError E1474 for a word that is trained and stands in no caption of these rows. The first caption
    that has it ends the search."""
    for word in words:
        small = word.lower()
        if not any(small in text.lower() for row in rows for text in catalogue.captions(int(row))):
            raise RecipeError(
                f"model.tokens: no caption contains {word}, so nothing would train it; add "
                f"{shlex.quote(f'data.captions.trigger={word}')}, which puts it before every caption, or write it in "
                "the captions where it belongs",
                code="E1474",
            )
