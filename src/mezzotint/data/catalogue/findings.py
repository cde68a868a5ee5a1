"""What is odd about the samples of a data set, by row: for its report and for the notes before a run. Nothing of it is
an error."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mezzotint.data.buckets import buckets
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.recipe.sections.data import DataSettings

MOSTLY_CUT = 0.5
"""Of a picture of which less than this share is seen, most is cut away."""

MANY_CAPTIONS = 10
"""A sample of so many captions has probably some that are not meant as such."""


def seen_shares(catalogue: Catalogue, rows: ArrayLike, settings: DataSettings) -> NDArray[np.float64]:
    """The share of each picture's area that is left when it covers its bucket and the rest is cut off, (n,), 0 to 1."""
    chosen = np.asarray(rows, dtype=np.int64)
    table = buckets.table(settings)
    bucket = catalogue.buckets_of(chosen, settings)
    wide, high = (np.asarray([getattr(size, side) for size in table], np.float64) for side in ("width", "height"))
    aspect = catalogue.width[chosen] / catalogue.height[chosen].astype(np.float64)
    ratio = aspect / (wide / high)[bucket]
    return np.minimum(ratio, 1.0 / ratio)


def duplicates(catalogue: Catalogue) -> dict[int, int]:
    """Rows whose file has the very bytes of an earlier row's that is another file, with the first such row."""
    keys = np.ascontiguousarray(catalogue.digest[:, :8]).view("<u8")[:, 0]
    ascending = np.sort(keys)
    if not (ascending[1:] == ascending[:-1]).any():  # twice as fast as what follows
        return {}
    order = np.argsort(keys, kind="stable")  # equal ones stay in the order of rows
    again = np.flatnonzero(keys[order][1:] == keys[order][:-1]) + 1
    first_row: dict[int, int] = {}
    for place in again.tolist():
        row, before = int(order[place]), int(order[place - 1])
        is_same = bool((catalogue.digest[row] == catalogue.digest[before]).all())
        if is_same and catalogue.path(row) != catalogue.path(before):
            first_row[row] = first_row.get(before, before)
    return first_row
