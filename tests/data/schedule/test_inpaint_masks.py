"""Regions to fill: drawn by the address of a visit, of many sizes and places."""

from __future__ import annotations

import numpy as np
import pytest

from mezzotint.data.schedule.inpaint_masks import FILLED, draw_region, is_full
from mezzotint.data.schedule.plan import Visit
from mezzotint.shapes import Size

SIZE = Size(96, 64)


def visit(number: int) -> Visit:
    return Visit(row=0, key_hash=number, seed=3, epoch=1, number=0)


def test_region_is_a_function_of_the_visit() -> None:
    first, again, other = draw_region(visit(1), SIZE), draw_region(visit(1), SIZE), draw_region(visit(2), SIZE)
    assert first.shape == (64, 96)
    assert first.dtype == np.uint8
    assert (first == again).all()
    assert (first != other).any()


def test_regions_fill_a_part_of_every_size_and_reach_every_place() -> None:
    regions = np.stack([draw_region(visit(number), SIZE) for number in range(400)])
    assert set(np.unique(regions)) == {0, FILLED}
    shares = (regions == FILLED).mean(axis=(1, 2))
    assert shares.min() > 0.005
    assert 0.2 < shares.mean() < 0.3, "a quarter of the area on average, as the reference says"
    assert (shares < 0.1).mean() > 0.05
    assert (shares > 0.4).mean() > 0.05
    reached = (regions == FILLED).mean(axis=0)
    assert reached.min() > 0.02, "corners, too"


@pytest.mark.parametrize("size", [Size(8, 8), Size(8, 64), Size(512, 8), Size(16, 1024)])
def test_small_and_long_images_have_regions(size: Size) -> None:
    for number in range(40):
        region = draw_region(visit(number), size)
        assert region.shape == (size.height, size.width)
        assert (region == FILLED).any()


def test_whole_image_is_filled_with_its_probability() -> None:
    shares = [sum(is_full(visit(number), share) for number in range(2000)) / 2000 for share in (0.0, 0.1, 1.0)]
    assert shares == [0.0, pytest.approx(0.1, abs=0.03), 1.0]
