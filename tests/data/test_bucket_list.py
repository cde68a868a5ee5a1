"""Buckets that are written down: those of a recipe, and those that SDXL was trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.data.buckets import buckets
from mezzotint.errors import RecipeError
from mezzotint.recipe.reading.read import read_text
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.shapes import Size

sides = st.integers(1, 8000)


def listed(sizes: Any, **more: Any) -> DataSettings:
    return DataSettings.model_validate({"buckets": {"shape": "list", "sizes": sizes}, **more})


def test_sdxls_sizes_are_the_forty_of_its_paper() -> None:
    table = buckets.table(listed("sdxl"))
    assert len(table) == 40
    assert [table[0], table[-1]] == [Size(512, 2048), Size(2048, 512)]
    assert Size(1024, 1024) in table
    assert {size for size in table if Size(size.height, size.width) not in table} == {Size(1344, 704)}
    assert all(size.width % 64 == size.height % 64 == 0 for size in table)
    assert all(0.9 < size.pixels / 1024**2 <= 1.0 for size in table)
    assert [size.aspect for size in table] == sorted(size.aspect for size in table)


@given(st.lists(st.tuples(sides, sides), min_size=1, max_size=20))
def test_a_picture_goes_to_the_nearest_shape_of_the_list(pictures: list[tuple[int, int]]) -> None:
    settings = listed("sdxl")
    table = buckets.table(settings)
    widths, heights = (np.array(side) for side in zip(*pictures, strict=True))
    for number, bucket in enumerate(buckets.of_pictures(widths, heights, settings).tolist()):
        far = [abs(np.log(size.aspect) - np.log(widths[number] / heights[number])) for size in table]
        assert far[bucket] == pytest.approx(min(far), abs=1e-12)


def test_of_sizes_of_one_shape_it_takes_the_largest_that_it_fills() -> None:
    settings = listed([[1024, 1024], [512, 512], [768, 768], [512, 768], [1024, 1536]])
    table = buckets.table(settings)
    assert table == (Size(512, 512), Size(768, 768), Size(1024, 1024), Size(768, 512), Size(1536, 1024))
    pictures = [(300, 300), (512, 512), (767, 900), (768, 800), (4000, 4000), (900, 600), (1536, 1024), (1536, 1000)]
    found = buckets.of_pictures(*map(np.array, zip(*pictures, strict=True)), settings)
    assert [table[i] for i in found.tolist()] == [
        Size(512, 512), Size(512, 512), Size(512, 512), Size(768, 768), Size(1024, 1024), Size(768, 512),
        Size(1536, 1024), Size(768, 512),
    ]  # fmt: skip


def test_a_size_that_stands_twice_counts_once_and_the_order_is_of_no_matter() -> None:
    one, other = listed([[64, 32], [32, 64], [64, 32]]), listed([[32, 64], [64, 32]])
    assert buckets.table(one) == buckets.table(other) == (Size(32, 64), Size(64, 32))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["shape=list"], "write data.buckets.sizes=sdxl"),
        (["sizes=sdxl"], "has no effect with data.buckets.shape=aspect"),
        (["shape=list", "sizes=[]"], "data.buckets.sizes"),
        (["shape=list", "sizes=[[100, 64]]"], "data.buckets.sizes"),
        (["shape=list", "sizes=[[64, 64, 3]]"], "data.buckets.sizes"),
        (["shape=list", "sizes=sd"], "data.buckets.sizes"),
    ],
)
def test_a_list_that_says_nothing_is_refused(words: list[str], said: str) -> None:
    with pytest.raises(RecipeError) as error:
        read_text("schema: 1", overrides=[f"data.buckets.{word}" for word in words])
    assert said in str(error.value)
