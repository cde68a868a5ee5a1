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

from mezzotint.data.buckets import buckets, own_sizes
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


# --- a range of sides, and images in their own size -----------------------------------------------------


def own(resolution: Any, step: int = 64, **more: Any) -> DataSettings:
    return DataSettings.model_validate({"resolution": resolution, "buckets": {"shape": "own", "step": step}, **more})


rules = st.sampled_from([(256, 8), (512, 64), (512, 16), (1024, 64), (1024, 32), (1536, 40)])


def test_known_range_of_512() -> None:
    settings = DataSettings.model_validate({"buckets": {"shape": "range", "min_side": 256, "max_side": 768}})
    # a width of 704 has the height 320, and one of 320 the height 768
    tall = [(256, 768), (320, 704), (320, 768), (384, 640), (448, 576)]
    wide = [(576, 448), (640, 384), (704, 320), (768, 256), (768, 320)]
    assert buckets.table(settings) == tuple(Size(*size) for size in [*tall, (512, 512), *wide])


def test_image_of_exactly_a_size_of_the_range_gets_it() -> None:
    settings = DataSettings.model_validate({"buckets": {"shape": "range", "min_side": 128, "max_side": 512}})
    table = buckets.table(settings)
    assert (Size(256, 512) in table, Size(128, 512) in table) == (True, True)
    images = [(256, 512), (512, 512), (1024, 2048), (128, 512)]
    numbers = buckets.of_images(*map(np.array, zip(*images, strict=True)), settings)
    assert [table[i] for i in numbers.tolist()] == [Size(256, 512), Size(512, 512), Size(256, 512), Size(128, 512)]


@limits(max_examples=200, deadline=None)
@given(rules, sides, sides)
def test_image_is_never_enlarged_and_covers_its_own_bucket(rule: tuple[int, int], width: int, height: int) -> None:
    resolution, step = rule
    fitted = own_sizes.fit(Size(width, height), resolution, step)
    if fitted is None:
        return
    resized, bucket = fitted.resized, fitted.bucket
    assert bucket.width <= resized.width <= width
    assert bucket.height <= resized.height <= height
    assert bucket.width % step == bucket.height % step == 0
    assert resized.width - bucket.width < step
    assert resized.height - bucket.height < step
    if width * height <= resolution**2:
        assert resized == Size(width, height)
    assert buckets.table(own(resolution, step))[own_index(own(resolution, step), width, height)] == bucket


def own_index(settings: DataSettings, width: int, height: int) -> int:
    return int(buckets.of_images(np.array([width]), np.array([height]), settings)[0])


@limits(max_examples=20, deadline=None)
@given(rules)
def test_table_of_own_sizes_is_sorted_symmetric_and_has_little_more_than_the_area(rule: tuple[int, int]) -> None:
    resolution, step = rule
    table = own_sizes.list_sizes(resolution, step)
    assert list(table) == sorted(set(table))
    assert {Size(size.height, size.width) for size in table} == set(table)
    multiples = range(step, resolution**2 // step + 1, step)
    in_area = {Size(w, h) for w in multiples for h in range(step, resolution**2 // w + 1, step)}
    assert in_area <= set(table)
    assert all((size.width - 1) * (size.height - 1) <= resolution**2 for size in set(table) - in_area)


def test_image_below_one_step_has_no_bucket() -> None:
    widths, heights, sets = np.array([64, 63, 8000, 8000, 100]), np.array([64, 64, 40, 300, 80]), np.zeros(5, np.int64)
    assert buckets.has_bucket(widths, heights, sets, own(512)).tolist() == [True, False, False, True, True]
    assert buckets.has_bucket(widths, heights, sets, own([512, 128])).tolist() == [True, False, False, False, True]
    assert buckets.has_bucket(widths, heights, sets, settings_of(512)).all()


def test_reduced_height_just_below_a_step_uses_the_other_candidate() -> None:
    images = [Size(width, height) for width in range(3800, 4300) for height in range(55, 70)]
    reduced = [fitted for image in images if (fitted := own_sizes.fit(image, 512, 64)) and image.pixels > 512**2]
    assert reduced
    assert all(fitted.bucket.height == 64 for fitted in reduced)


def test_sets_with_own_sizes_and_other_buckets_share_a_table() -> None:
    settings = own(
        [64, 128], 32, small_images="upscale",
        sets=[{"path": "a"}, {"path": "b", "buckets": {"shape": "square"}}, {"path": "c", "resolution": 96}],
    )  # fmt: skip
    table = buckets.table(settings)
    assert len(table) == len(set(table))
    placed = buckets.place([200, 200, 200], [100, 100, 100], [0, 1, 2], settings)
    sizes = [Size(64, 32), Size(128, 64), Size(64, 64), Size(128, 128), Size(128, 64)]
    assert [table[i] for i in placed.bucket.tolist()] == sizes
    assert placed.sample.tolist() == [0, 0, 1, 1, 2]


def test_sets_with_too_many_sizes_together_are_refused() -> None:
    sets = [{"path": f"set{step}", "buckets": {"step": step}} for step in (32, 40, 56, 72, 88)]
    with pytest.raises(RecipeError, match=r"data\.sets have 3\d,\d+ sizes, more than 32,767; set data\.buckets\.step"):
        buckets.table(own(1536, sets=sets))


def test_many_own_sizes_are_found_quickly() -> None:
    sizes = np.random.default_rng(0).integers(1, 5000, (2, 100_000))
    start = time.process_time()
    numbers = buckets.of_images(sizes[0], sizes[1], own(1024, 24))
    assert time.process_time() - start < 10.0  # 0.4 s on an idle core
    assert numbers.dtype == np.int16


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["buckets.min_side=128"], "data.buckets.min_side has no effect with data.buckets.shape=aspect"),
        (["buckets.max_side=768", "buckets.shape=own"], "max_side has no effect with data.buckets.shape=own"),
        (["buckets.shape=range", "buckets.min_side=200"], "(200) must be a multiple of data.buckets.step (64); write"),
        (["buckets.shape=range", "buckets.step=48", "resolution=528"], "(256) must be a multiple of data.buckets.step"),
        (["buckets.shape=range", "buckets.min_side=1088"], "min_side (1088) is above data.buckets.max_side (1024)"),
        (["buckets.shape=range", "resolution=1152"], "(1152) is above data.buckets.max_side (1024); raise"),
        (["buckets.shape=range", "resolution=32"], "data.resolution (32) is below data.buckets.step (64)"),
        (["buckets.shape=own", "resolution=32"], "data.resolution (32) is below data.buckets.step (64)"),
        (["buckets.shape=own", "buckets.step=8"], "more than 32,767 sizes; write data.buckets.step=16 or more"),
        (["buckets.shape=own", "buckets.step=8", "resolution=1024"], "write data.buckets.step=24 or more"),
        (["buckets.shape=own", "small_images=skip"], "data.small_images=skip has no effect"),
        (["buckets.shape=own", "crop=triangular"], "data.crop=triangular may enlarge images"),
        (["buckets.shape=own", "format=videofolder"], "data.buckets.shape=own is for images"),
    ],
)  # fmt: skip
def test_contradictions_of_range_and_own_sizes(words: list[str], message: str) -> None:
    with pytest.raises(RecipeError) as error:
        read_text("schema: 1", overrides=["data.path=x", *(f"data.{word}" for word in words)])
    assert message in str(error.value)
