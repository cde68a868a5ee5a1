"""Buckets: their sizes, and the assignment of images."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from mezzotint.data.buckets import buckets
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.sections.data import DataSettings
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


@limits(max_examples=30)
@given(legal)
def test_buckets_respect_area_aspect_and_step_and_are_maximal(settings: DataSettings) -> None:
    area, step, most = settings.resolution[0] ** 2, settings.buckets.step, settings.buckets.max_aspect
    table = buckets.table(settings)

    def fits(width: int, height: int) -> bool:
        return width * height <= area and max(width, height) <= min(width, height) * most + 1e-6

    for size in table:
        assert size.width % step == 0
        assert size.height % step == 0
        assert fits(size.width, size.height)
        assert not fits(size.width + step, size.height)
        assert not fits(size.width, size.height + step)


@limits(max_examples=12)
@given(legal)
def test_table_has_exactly_the_maximal_sizes(settings: DataSettings) -> None:
    area, step, most = settings.resolution[0] ** 2, settings.buckets.step, settings.buckets.max_aspect
    multiples = range(step, int(settings.resolution[0] * most) + step, step)

    def fits(width: int, height: int) -> bool:
        return width * height <= area and max(width, height) <= math.floor(min(width, height) * most + 1e-9)

    sizes = [(w, h) for w in multiples for h in multiples if fits(w, h)]
    widest = {h: max(w for w, other in sizes if other >= h) for _, h in sizes}
    tallest = {w: max(h for other, h in sizes if other >= w) for w, _ in sizes}
    expected = {Size(w, h) for w, h in sizes if widest[h] == w and tallest[w] == h}
    assert set(buckets.table(settings)) == expected


@limits(max_examples=30)
@given(legal)
def test_table_is_sorted_symmetric_unique_and_contains_the_square(settings: DataSettings) -> None:
    table = buckets.table(settings)
    aspects = [size.aspect for size in table]
    assert aspects == sorted(set(aspects))
    assert {Size(size.height, size.width) for size in table} == set(table)
    assert Size(*settings.resolution * 2) in table


@limits(max_examples=30)
@given(legal, sides, sides)
def test_assignment_is_the_nearest_and_symmetric(settings: DataSettings, width: int, height: int) -> None:
    table = buckets.table(settings)
    chosen, turned = (table[i] for i in buckets.assign([width, height], [height, width], table).tolist())
    assert turned == Size(chosen.height, chosen.width)
    distances = [abs(math.log(width / height) - math.log(size.aspect)) for size in table]
    assert distances[table.index(chosen)] <= min(distances) + 1e-9


def test_tie_goes_to_the_bucket_closer_to_the_square() -> None:
    table = (Size(1, 4), Size(1, 1), Size(4, 1))
    assert buckets.assign([2, 1], [1, 2], table).tolist() == [1, 1]
    assert buckets.assign([2.01, 1], [1, 2.01], table).tolist() == [2, 0]


def test_every_base_size_has_a_table() -> None:
    for resolution in range(256, 1537, 64):
        table = buckets.table(settings_of(resolution))
        assert len(table) >= 3
        assert min(size.pixels for size in table) > 0.6 * resolution**2


def test_known_table_of_512() -> None:
    sizes = [(384, 640), (448, 576), (512, 512), (576, 448), (640, 384)]
    assert buckets.table(settings_of(512)) == tuple(Size(*size) for size in sizes)


def test_square_shape_has_only_the_square() -> None:
    assert buckets.table(settings_of(512, shape="square")) == (Size(512, 512),)


def test_million_images_are_assigned_quickly() -> None:
    sizes = np.random.default_rng(0).integers(1, 5000, (2, 1_000_000))
    start = time.process_time()
    numbers = buckets.assign(sizes[0], sizes[1], buckets.table(settings_of(1024)))
    assert time.process_time() - start < 1.0  # 0.03 s on an idle core
    assert numbers.dtype == np.int16
    assert numbers.shape == (1_000_000,)


# --- listed sizes --------------------------------------------------------------------------------------


def listed(sizes: Any, **more: Any) -> DataSettings:
    return DataSettings.model_validate({"buckets": {"shape": "list", "sizes": sizes}, **more})


def test_sdxl_list_has_the_sizes_of_its_paper() -> None:
    table = buckets.table(listed("sdxl"))
    assert len(table) == 40
    assert [table[0], table[-1]] == [Size(512, 2048), Size(2048, 512)]
    assert Size(1024, 1024) in table
    assert {size for size in table if Size(size.height, size.width) not in table} == {Size(1344, 704)}
    assert all(size.width % 64 == size.height % 64 == 0 for size in table)
    assert all(0.9 < size.pixels / 1024**2 <= 1.0 for size in table)
    assert [size.aspect for size in table] == sorted(size.aspect for size in table)


@limits(max_examples=30)
@given(st.lists(st.tuples(sides, sides), min_size=1, max_size=20))
def test_image_goes_to_the_nearest_listed_shape(images: list[tuple[int, int]]) -> None:
    settings = listed("sdxl")
    table = buckets.table(settings)
    widths, heights = (np.array(side) for side in zip(*images, strict=True))
    for number, bucket in enumerate(buckets.of_images(widths, heights, settings).tolist()):
        far = [abs(np.log(size.aspect) - np.log(widths[number] / heights[number])) for size in table]
        assert far[bucket] == pytest.approx(min(far), abs=1e-12)


def test_image_goes_to_the_largest_size_that_it_fills() -> None:
    settings = listed([[1024, 1024], [512, 512], [768, 768], [512, 768], [1024, 1536]])
    table = buckets.table(settings)
    assert table == (Size(512, 512), Size(768, 768), Size(1024, 1024), Size(768, 512), Size(1536, 1024))
    images = [(300, 300), (512, 512), (767, 900), (768, 800), (4000, 4000), (900, 600), (1536, 1024), (1536, 1000)]
    numbers = buckets.of_images(*map(np.array, zip(*images, strict=True)), settings)
    assert [table[i] for i in numbers.tolist()] == [
        Size(512, 512), Size(512, 512), Size(512, 512), Size(768, 768), Size(1024, 1024), Size(768, 512),
        Size(1536, 1024), Size(768, 512),
    ]  # fmt: skip


def test_duplicates_and_order_of_listed_sizes_do_not_matter() -> None:
    one, other = listed([[64, 32], [32, 64], [64, 32]]), listed([[32, 64], [64, 32]])
    assert buckets.table(one) == buckets.table(other) == (Size(32, 64), Size(64, 32))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["shape=list"], "write data.buckets.sizes=sdxl"),
        (["sizes=sdxl"], "has no effect with data.buckets.shape=aspect"),
        (["shape=list", "sizes=[]"], "data.buckets.sizes"),
        (["shape=list", "sizes=[[100, 64]]"], "data.buckets.sizes"),
        (["shape=list", "sizes=[[64, 64, 3]]"], "data.buckets.sizes"),
        (["shape=list", "sizes=sd"], "data.buckets.sizes"),
    ],
)
def test_invalid_lists_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(RecipeError) as error:
        read_text("schema: 1", overrides=[f"data.buckets.{word}" for word in words])
    assert message in str(error.value)
