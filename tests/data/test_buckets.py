"""Buckets: which sizes there are, and which a picture falls into."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.data.buckets import buckets
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.shapes import Size


def settings_of(resolution: int, step: int = 64, max_aspect: float = 2.0, shape: str = "aspect") -> DataSettings:
    return DataSettings.model_validate(
        {"resolution": resolution, "buckets": {"step": step, "max_aspect": max_aspect, "shape": shape}}
    )


legal = st.builds(
    lambda step, times, aspect: settings_of(max(16, step * times), step, aspect),
    st.sampled_from([8, 16, 32, 64]),
    st.integers(2, 24),
    st.floats(1.0, 8.0),
)
sides = st.integers(1, 20_000)


@given(legal)
def test_every_bucket_keeps_within_area_aspect_and_step_and_could_not_be_larger(settings: DataSettings) -> None:
    area, step, most = settings.resolution**2, settings.buckets.step, settings.buckets.max_aspect
    table = buckets.table(settings)

    def fits(width: int, height: int) -> bool:
        return width * height <= area and max(width, height) <= min(width, height) * most + 1e-6

    for size in table:
        assert size.width % step == 0
        assert size.height % step == 0
        assert fits(size.width, size.height)
        assert not fits(size.width + step, size.height)
        assert not fits(size.width, size.height + step)


@given(legal)
def test_table_holds_every_size_that_no_other_contains(settings: DataSettings) -> None:
    area, step, most = settings.resolution**2, settings.buckets.step, settings.buckets.max_aspect
    multiples = range(step, int(settings.resolution * most) + step, step)

    def fits(width: int, height: int) -> bool:
        return width * height <= area and max(width, height) <= math.floor(min(width, height) * most + 1e-9)

    sizes = [(w, h) for w in multiples for h in multiples if fits(w, h)]
    widest = {h: max(w for w, other in sizes if other >= h) for _, h in sizes}
    tallest = {w: max(h for other, h in sizes if other >= w) for w, _ in sizes}
    expected = {Size(w, h) for w, h in sizes if widest[h] == w and tallest[w] == h}
    assert set(buckets.table(settings)) == expected


@given(legal)
def test_table_is_sorted_symmetric_distinct_and_has_the_square(settings: DataSettings) -> None:
    table = buckets.table(settings)
    aspects = [size.aspect for size in table]
    assert aspects == sorted(set(aspects))
    assert {Size(size.height, size.width) for size in table} == set(table)
    assert Size(settings.resolution, settings.resolution) in table


@given(legal, sides, sides)
def test_assignment_is_the_nearest_and_turns_with_the_picture(settings: DataSettings, width: int, height: int) -> None:
    table = buckets.table(settings)
    chosen = buckets.nearest(Size(width, height), table)
    turned = buckets.nearest(Size(height, width), table)
    assert turned == Size(chosen.height, chosen.width)
    distances = [abs(math.log(width / height) - math.log(size.aspect)) for size in table]
    assert distances[table.index(chosen)] <= min(distances) + 1e-9


def test_a_tie_goes_to_the_bucket_nearer_to_the_square() -> None:
    table = (Size(1, 4), Size(1, 1), Size(4, 1))
    assert buckets.assign([2, 1], [1, 2], table).tolist() == [1, 1]
    assert buckets.assign([2.01, 1], [1, 2.01], table).tolist() == [2, 0]


@pytest.mark.parametrize("resolution", range(256, 1537, 64))
def test_every_base_size_has_a_table(resolution: int) -> None:
    table = buckets.table(settings_of(resolution))
    assert len(table) >= 3
    assert min(size.pixels for size in table) > 0.6 * resolution**2


def test_known_table_of_512() -> None:
    sizes = [(384, 640), (448, 576), (512, 512), (576, 448), (640, 384)]
    assert buckets.table(settings_of(512)) == tuple(Size(*size) for size in sizes)


def test_square_shape_has_the_square_alone() -> None:
    assert buckets.table(settings_of(512, shape="square")) == (Size(512, 512),)


def test_a_million_pictures_are_assigned_at_once() -> None:
    drawn = np.random.default_rng(0).integers(1, 5000, (2, 1_000_000))
    began = time.process_time()
    found = buckets.assign(drawn[0], drawn[1], buckets.table(settings_of(1024)))
    assert time.process_time() - began < 1.0  # 0.03 s of its own on an idle core
    assert found.dtype == np.int16
    assert found.shape == (1_000_000,)
