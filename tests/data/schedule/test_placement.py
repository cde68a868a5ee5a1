"""Where an image is cropped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from mezzotint import draws
from mezzotint.data.buckets import buckets
from mezzotint.data.schedule.columns import plan_columns
from mezzotint.data.schedule.placement import at_visit, cached_view
from mezzotint.data.schedule.plan import Visit
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size, cover
from support.data_sets import small_of as settings_of
from support.loading import place_by


@limits(max_examples=60, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(0, 2**64 - 1), st.sampled_from(["center", "random"]))
def test_crop_is_inside_the_resized_image(width: int, height: int, key: int, crop: str) -> None:
    settings = settings_of(crop=crop)
    table = buckets.table(settings)
    bucket = table[int(buckets.assign([width], [height], table)[0])]
    placed = place_by(settings, Size(width, height), bucket, crop_key=key, flip_key=key)
    top, left = placed.crop_top_left
    assert placed.resized == cover(Size(width, height), bucket)
    assert 0 <= top <= placed.resized.height - bucket.height
    assert 0 <= left <= placed.resized.width - bucket.width
    assert not placed.flipped


def catalogue_of(width: int, height: int) -> Any:
    hashes = np.asarray([draws.text_key("x.png"), draws.text_key("y.png")], dtype=np.uint64)
    overrides = SimpleNamespace(
        group=np.zeros(2, np.int32), rating=np.ones(2), prior=np.zeros(2, np.uint8), flip_of=lambda row: None
    )
    return SimpleNamespace(
        conditions={},
        width=np.full(2, width),
        height=np.full(2, height),
        key_hash=hashes,
        repeats=np.ones(2),
        overrides=overrides,
        set=np.zeros(2, np.uint16),
        buckets_of=lambda rows, settings: buckets.place(
            [width] * len(rows), [height] * len(rows), [0] * len(rows), settings
        ),
    )


def placed_at(settings: DataSettings, **where: Any) -> Any:
    catalogue = catalogue_of(300, 100)
    address = {"row": 0, "seed": 1, "epoch": 0, "number": 0, **where}
    visit = Visit(**address, key_hash=int(catalogue.key_hash[address["row"]]))
    return at_visit(catalogue, visit, Size(64, 64), settings)


def test_random_crops_cover_every_position_and_are_deterministic() -> None:
    settings = settings_of(crop="random", flip=0.5)
    lefts = {placed_at(settings, epoch=e).crop_top_left[1] for e in range(3000)}
    assert lefts == set(range(192 - 64 + 1))
    flips = sum(placed_at(settings, epoch=e).flipped for e in range(2000))
    assert 900 < flips < 1100
    assert placed_at(settings, epoch=4) == placed_at(settings, epoch=4)
    for other in ({"row": 1}, {"seed": 2}, {"number": 1}):
        differing = sum(placed_at(settings, epoch=e) != placed_at(settings, epoch=e, **other) for e in range(20))
        assert differing > 15


def test_cached_views_differ_and_depend_on_the_seed() -> None:
    settings = settings_of(crop="random", flip=0.5)

    def view(number: int, seed: int = 1) -> Any:
        return cached_view(catalogue_of(300, 100), 0, Size(64, 64), settings, seed=seed, view=number)

    assert len({view(number) for number in range(20)}) > 15
    assert [view(number) for number in range(20)] != [view(number, seed=2) for number in range(20)]


@pytest.mark.parametrize(("share", "expected"), [(0.0, {False}), (1.0, {True})])
def test_flip_share_of_0_and_1_is_exact(share: float, expected: set[bool]) -> None:
    assert {placed_at(settings_of(flip=share), epoch=e).flipped for e in range(50)} == expected


@pytest.mark.parametrize(("resized", "corner"), [(85, 10), (96, 16), (113, 24), (87, 12)])
def test_centre_crop_rounds_like_the_reference(resized: int, corner: int) -> None:
    placed = place_by(settings_of(), Size(resized, 64), Size(64, 64), crop_key=0, flip_key=0)
    assert placed.crop_top_left == (0, corner)


def test_plan_columns_have_the_requested_rows() -> None:
    columns = plan_columns(catalogue_of(300, 100), [1], settings_of())
    assert columns.key_hash.tolist() == [draws.text_key("y.png")]
    assert buckets.table(settings_of())[columns.bucket[0]].aspect == max(
        size.aspect for size in buckets.table(settings_of())
    )


# --- images in their own size ---------------------------------------------------------------------------


def own(resolution: Any = 512, **more: Any) -> DataSettings:
    return DataSettings.model_validate({"resolution": resolution, "buckets": {"shape": "own"}, **more})


def placed_own(settings: DataSettings, width: int, height: int, epoch: int = 0) -> Any:
    catalogue = catalogue_of(width, height)
    bucket = buckets.table(settings)[int(buckets.place([width], [height], [0], settings).bucket[-1])]
    visit = Visit(0, int(catalogue.key_hash[0]), 1, epoch, 0)
    view = cached_view(catalogue, 0, bucket, settings, seed=1, view=epoch)
    return at_visit(catalogue, visit, bucket, settings), view


@limits(max_examples=60, deadline=None)
@given(st.integers(130, 3000), st.integers(130, 3000), st.sampled_from(["center", "random", "stretch"]))
def test_image_in_its_own_size_is_never_enlarged(width: int, height: int, crop: str) -> None:
    for placed in placed_own(own(crop=crop), width, height):
        assert placed.resized.width <= width
        assert placed.resized.height <= height
        top, left = placed.crop_top_left
        assert 0 <= top <= placed.resized.height - placed.bucket.height
        assert 0 <= left <= placed.resized.width - placed.bucket.width


def test_small_image_is_cropped_on_both_sides_and_not_resized() -> None:
    for placed in placed_own(own(), 331, 411):
        assert (placed.bucket, placed.resized) == (Size(320, 384), Size(331, 411))
        assert placed.crop_top_left == (14, 6)


def test_large_image_is_resized_to_a_multiple_of_the_step_on_one_side() -> None:
    for placed in placed_own(own(), 1000, 1500):
        assert (placed.bucket, placed.resized) == (Size(384, 576), Size(384, 576))
    for placed in placed_own(own(), 1000, 1400):
        assert (placed.bucket, placed.resized) == (Size(384, 512), Size(384, 538))


def test_random_crops_of_both_sides_are_independent() -> None:
    corners = {placed_own(own(crop="random"), 331, 390, epoch)[0].crop_top_left for epoch in range(2000)}
    assert corners == {(top, left) for top in range(7) for left in range(12)}


def test_first_base_size_counts_if_two_give_the_same_bucket() -> None:
    assert placed_own(own([512, 768]), 520, 520)[0].resized == Size(512, 512)
    assert placed_own(own([768, 512]), 520, 520)[0].resized == Size(520, 520)
