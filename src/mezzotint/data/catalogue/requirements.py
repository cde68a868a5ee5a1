"""What a recipe requires of a data set: masks (`data.mask`), captions with its learned tokens (`model.tokens`)."""

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
    """The number of rows with a mask (`data.cache.entries.has_mask`)."""
    indexes = np.asarray(rows, dtype=np.int64)
    sources = np.array([one.settings.mask.source for one in settings.image_sets()])[catalogue.set[indexes]]
    count = int(np.count_nonzero(catalogue.conversions[indexes[sources == "alpha"]] & np.uint16(Conversion.ALPHA)))
    digests = catalogue.overrides.mask_digest
    return count if digests is None else count + int(digests[indexes[sources == "files"]].any(axis=1).sum())


def require_masks(catalogue: Catalogue, settings: DataSettings) -> None:
    """Raises DatasetError E1475 if the recipe uses masks and no image has one."""
    if not settings.has_masks or count_masks(catalogue, np.arange(len(catalogue)), settings):
        return
    folders = ", ".join(map(str, [settings.mask.path] if settings.mask.path else catalogue.roots))
    if settings.mask.source == "alpha":
        problem, remedy = "no image has transparent pixels", "save images with an alpha channel (PNG, WebP)"
    elif settings.mask.path:
        problem, remedy = "no file in it has the name of an image", "name each mask like its image, with any extension"
    else:
        spec = format_spec(settings.format)
        sources = [f"NAME{ENDING}.png next to it"] if spec.reads_masks else []
        sources += [spec.own_masks] if spec.own_masks else []
        problem = f"no image NAME has a mask ({', or '.join(sources)})"
        remedy = "add masks" + (", or set data.mask.path" if spec.reads_masks else "")
    raise DatasetError(
        f"{folders}: data.mask.source={settings.mask.source}, but {problem}; {remedy}, or remove data.mask",
        code="E1475",
    )


def require_learned_tokens(catalogue: Catalogue, rows: Iterable[int], tokens: Iterable[str]) -> None:
    """Raises RecipeError E1474 for a learned token that is in no caption of these rows. The search for a token stops at
    the first caption that contains it."""
    for token in tokens:
        lowered = token.lower()
        if not any(lowered in text.lower() for row in rows for text in catalogue.captions(int(row))):
            raise RecipeError(
                f"model.tokens: no caption contains {token}, so nothing would train it; add "
                f"{shlex.quote(f'data.captions.trigger={token}')}, which puts it before every caption, or write it in "
                "the captions where it belongs",
                code="E1474",
            )
