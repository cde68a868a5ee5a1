"""Buckets that are written down, for `data.buckets.shape=list`: those of the recipe, or those that SDXL was trained on.

A list may have several sizes of one shape, such as 512² and 1024². Which shape a picture takes is decided as for any
other buckets; of its sizes it takes the largest that it fills.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.recipe.sections.data import BucketSettings
from mezzotint.shapes import Size


def sizes(settings: BucketSettings) -> tuple[Size, ...]:
    """The sizes of a recipe, each once, from tall to wide, those of one shape from small to large."""
    assert settings.sizes is not None, "the recipe was not read"
    return tuple(
        sorted({Size(width, height) for height, width in settings.sizes}, key=lambda size: (size.aspect, size.pixels))
    )


def shapes(found: Sequence[Size]) -> tuple[Size, ...]:
    """The smallest size of each shape."""
    return tuple(next(group) for _, group in groupby(found, lambda size: size.aspect))


def of_shape(
    shape: NDArray[np.int16], widths: NDArray[Any], heights: NDArray[Any], found: Sequence[Size]
) -> NDArray[np.int16]:
    """The number in `found` of each picture's bucket. shape: (n,) number in `shapes(found)`. widths, heights: (n,)."""
    lengths = [len(list(group)) for _, group in groupby(found, lambda size: size.aspect)]
    first = np.concatenate(([0], np.cumsum(lengths)))
    chosen = first[shape]
    for number in np.flatnonzero(np.asarray(lengths) > 1).tolist():
        for place in range(int(first[number]) + 1, int(first[number + 1])):
            fills = (widths >= found[place].width) & (heights >= found[place].height)
            chosen = np.where((shape == number) & fills, place, chosen)
    return chosen.astype(np.int16)
