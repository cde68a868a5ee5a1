"""Buckets of a range of sides, and of images in their own size, equal those of the published formulas."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import bucket_formulas
from mezzotint.data.buckets import buckets, own_sizes
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size

RULES = [(512, 64), (768, 64), (1024, 64), (1024, 32), (640, 48), (504, 64), (256, 8)]


def images(count: int = 400) -> list[tuple[int, int]]:
    """Sizes of images: usual ones, small and very elongated ones, squares, and multiples of a step."""
    chance = random.Random(0)
    free = [(int(2 ** chance.uniform(3, 13)), int(2 ** chance.uniform(3, 13))) for _ in range(count)]
    usual = [(chance.randint(400, 4000), chance.randint(400, 4000)) for _ in range(count)]
    squares = [(side, side) for side in range(200, 1400, 37)]
    multiples = [(64 * chance.randint(2, 30), 64 * chance.randint(2, 30)) for _ in range(count)]
    return [*free, *usual, *squares, *multiples]


def settings_of(resolution: int, **values: Any) -> DataSettings:
    return DataSettings.model_validate({"resolution": resolution, "buckets": values})


def chosen(settings: DataSettings) -> list[tuple[int, int]]:
    widths, heights = (np.array(side) for side in zip(*images(), strict=True))
    table = buckets.table(settings)
    return [(table[i].width, table[i].height) for i in buckets.of_images(widths, heights, settings).tolist()]


@pytest.mark.parametrize(("resolution", "step"), RULES)
def test_sizes_and_choice_of_a_range_are_those_of_the_formulas(resolution: int, step: int) -> None:
    for low, high in ((2, 32), (4, 24), (1, 40)):
        sides = {"min_side": low * step, "max_side": max(high * step, -(-resolution // step) * step)}
        settings = settings_of(resolution, shape="range", step=step, **sides)
        sizes = bucket_formulas.list_sizes(resolution, step, **sides)
        assert [(size.width, size.height) for size in buckets.table(settings)] == sizes
        assert chosen(settings) == [bucket_formulas.choose_size(*image, sizes) for image in images()]


@pytest.mark.parametrize(("resolution", "step"), RULES)
def test_own_sizes_are_those_of_the_formulas(resolution: int, step: int) -> None:
    settings, num_fitted = settings_of(resolution, shape="own", step=step), 0
    for image, bucket in zip(images(), chosen(settings), strict=True):
        fitted = own_sizes.fit(Size(*image), resolution, step)
        try:
            expected = bucket_formulas.fit_own(*image, resolution, step)
        except ZeroDivisionError:
            continue  # reduced to less than one step on a side
        if 0 in expected[1]:
            assert fitted is None
            continue
        assert fitted is not None
        assert fitted.resized == Size(*expected[0])
        assert fitted.bucket == Size(*expected[1]) == Size(*bucket)
        num_fitted += 1
    assert num_fitted > 0.8 * len(images())
