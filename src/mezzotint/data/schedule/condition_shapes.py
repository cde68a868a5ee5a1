"""The sizes of condition images that keep their own shape (`align: own`), which decide what may share a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]


def fit(width: _Ints, height: _Ints, pixels: _Ints, settings: DataSettings) -> tuple[_Ints, _Ints]:
    """The sizes (n,) of images that keep their shape, beside samples whose buckets have so many pixels: about as many
    as the base size (`data.resolution`) that is nearest to the bucket, with sides that are multiples of
    `data.buckets.step`."""
    return _scale(width, height, _nearest_base(pixels, settings), settings.buckets.step)


def fit_one(size: Size, pixels: int, settings: DataSettings, *, is_exact: bool = False) -> Size:
    """`fit` of one image. is_exact: about as many pixels as given, instead of a base size."""
    width, height, base = (np.array([n], np.int64) for n in (size.width, size.height, pixels))
    sides = _scale(width, height, base, settings.buckets.step) if is_exact else fit(width, height, base, settings)
    return Size(*(int(side[0]) for side in sides))


def find_largest(pixels: int, settings: DataSettings) -> Size:
    """The largest size that `fit` gives images of up to `data.buckets.max_aspect` beside samples of so many pixels."""
    step, widest = settings.buckets.step, settings.buckets.max_aspect
    [base] = _nearest_base(np.array([pixels]), settings)
    # of sides that are rounded to multiples, one is just above the middle of two of them
    width = (np.arange(1, math.ceil(math.sqrt(base * widest) / step) + 1) - 0.5) * step * (1 + 1e-9)
    width = np.concatenate([[math.sqrt(base)], width, base / width])
    width = width[np.maximum(width**2 / base, base / width**2) <= widest]
    wide, high = _scale(width, base / width, base, step)
    most = (wide * high).argmax()
    return Size(int(wide[most]), int(high[most]))


def _nearest_base(pixels: _Ints, settings: DataSettings) -> _Ints:
    bases = np.array(sorted({side**2 for one in settings.image_sets() for side in one.settings.resolution}), np.int64)
    nearest: _Ints = bases[np.abs(pixels[:, None] - bases).argmin(axis=1)]
    return nearest


def _scale(width: _Ints | _Floats, height: _Ints | _Floats, pixels: _Ints, step: int) -> tuple[_Ints, _Ints]:
    factor = np.sqrt(pixels / (width * height).astype(np.float64))
    wide, high = (np.maximum(np.rint(side * factor / step), 1).astype(np.int64) * step for side in (width, height))
    return wide, high


def shapes_of(
    catalogue: Catalogue, rows: NDArray[np.integer], bucket: NDArray[np.integer], table: Sequence[Size],
    settings: DataSettings,
) -> NDArray[np.int16] | None:  # fmt: skip
    """A number for each entry, equal where all condition images have one size; None if they have those of their
    buckets. rows, bucket: (n,) of each entry. table: the sizes of buckets."""
    sides = []
    for name, paired in catalogue.conditions.items():
        is_own = np.array([one.settings.conditions[name].align == "own" for one in settings.image_sets()])
        if not is_own.any():
            continue
        image = paired.rows[rows]
        wide, high = (
            np.array([getattr(size, side) for size in table], np.int64)[bucket] for side in ("width", "height")
        )
        width, height = (getattr(paired.images, side)[image].astype(np.int64) for side in ("width", "height"))
        own = fit(width, height, wide * high, settings)
        keeps = is_own[catalogue.set[rows]] & (image >= 0)
        sides += [np.where(keeps, own[0], wide), np.where(keeps, own[1], high)]
    if not sides:
        return None
    number: NDArray[np.int16] = np.unique(np.stack(sides, axis=1), axis=0, return_inverse=True)[1].astype(np.int16)
    return number.reshape(-1)
