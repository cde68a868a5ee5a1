"""Sizes of condition images that keep their shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mezzotint.data.schedule.condition_shapes import find_largest, fit
from mezzotint.settings.sections.data import DataSettings

SETTINGS = [
    {"resolution": 512, "buckets": {"step": 64}},
    {"resolution": [320, 768], "buckets": {"step": 32, "max_aspect": 4.0}},
    {"resolution": 64, "buckets": {"step": 16, "max_aspect": 1.0}},
]


@pytest.mark.parametrize("values", SETTINGS)
def test_largest_size_is_the_largest_that_an_image_gets(values: dict[str, Any]) -> None:
    settings = DataSettings.model_validate(values)
    for pixels in (300**2, 768 * 700):
        widest = settings.buckets.max_aspect
        width = np.rint(10_000 * np.sqrt(np.geomspace(1 / widest, widest, 40_001))).astype(np.int64)
        sides = fit(width, 10_000**2 // width, np.full(len(width), pixels), settings)
        assert find_largest(pixels, settings).pixels == (sides[0] * sides[1]).max()
