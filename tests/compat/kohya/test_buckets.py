"""Bucket sizes, against the numbers of tools/kohya_data_formulas.py."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.compat.kohya._buckets import bucket_sizes, parse_resolution, settings_of_sizes, write_sizes
from mezzotint.data.buckets.buckets import shapes
from mezzotint.settings.sections.buckets import BucketSettings
from mezzotint.settings.sections.data import DataSettings

USUAL: dict[str, Any] = {"least": 256, "most": 1024, "step": 64}


@pytest.mark.parametrize(
    ("resolution", "rules", "count", "pixels", "first"),
    [
        ((512, 512), USUAL, 17, 4112384, (256, 832)),
        ((1024, 1024), {"least": 512, "most": 2048, "step": 64}, 33, 33292288, (512, 1856)),
        ((768, 512), USUAL, 19, 6713344, (256, 1024)),
        ((512, 512), {"least": 320, "most": 704, "step": 32}, 15, 3760128, (320, 704)),
    ],
)
def test_sizes_are_those_of_the_published_rule(
    resolution: tuple[int, int], rules: dict[str, int], count: int, pixels: int, first: tuple[int, int]
) -> None:
    sizes = bucket_sizes(*resolution, **rules)
    assert (len(sizes), sum(width * height for width, height in sizes), sizes[0]) == (count, pixels, first)
    assert {(height, width) for width, height in sizes} == set(sizes)


def test_bounds_are_rounded_outwards_to_steps() -> None:
    rounded = settings_of_sizes(512, 512, buckets=True, least=300, most=1000, step=64)
    assert rounded == settings_of_sizes(512, 512, buckets=True, **USUAL)
    assert rounded == {
        "resolution": 512, "buckets.shape": "range", "buckets.step": 64, "buckets.min_side": 256,
        "buckets.max_side": 1024,
    }  # fmt: skip


@pytest.mark.parametrize(
    "rules", [USUAL, {"least": 512, "most": 2048, "step": 64}, {"least": 300, "most": 900, "step": 32}]
)
@pytest.mark.parametrize("side", [512, 768, 520])
def test_squares_have_the_sizes_of_a_range(side: int, rules: dict[str, Any]) -> None:
    given = settings_of_sizes(side, side, buckets=True, **rules)
    tree = {name.removeprefix("buckets."): value for name, value in given.items()}
    data = DataSettings.model_validate({"resolution": tree.pop("resolution"), "buckets": tree})
    step = rules["step"]
    bounds = {"least": rules["least"] // step * step, "most": -(-rules["most"] // step) * step, "step": step}
    assert [(size.width, size.height) for size in shapes(data)] == bucket_sizes(side, side, **bounds)


def test_rectangles_have_a_list() -> None:
    sizes = settings_of_sizes(768, 512, buckets=True, **USUAL)
    assert (sizes["resolution"], sizes["buckets.shape"], len(sizes["buckets.sizes"])) == (624, "list", 19)
    assert sizes["buckets.sizes"][0] == [1024, 256]  # height first


@pytest.mark.parametrize(("size", "side"), [((512, 512), 512), ((768, 512), 624)])
def test_images_that_are_not_enlarged_keep_their_size(size: tuple[int, int], side: int) -> None:
    own = settings_of_sizes(*size, buckets=True, enlarges=False, **USUAL)
    assert own == {"resolution": side, "buckets.shape": "own", "buckets.step": 64}
    square = {"resolution": 512, "buckets.shape": "square", "buckets.step": 64}
    assert settings_of_sizes(512, 512, buckets=False, enlarges=False, **USUAL) == square


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((512, 512), {"resolution": 512, "buckets.shape": "square", "buckets.step": 64}),
        ((520, 520), {"resolution": 520, "buckets.shape": "square", "buckets.step": 8}),
        ((768, 512), {"resolution": 624, "buckets.shape": "list", "buckets.sizes": [[512, 768]]}),
    ],
)
def test_without_buckets_there_is_one_size(size: tuple[int, int], expected: dict[str, Any]) -> None:
    assert settings_of_sizes(*size, buckets=False, **USUAL) == expected


@pytest.mark.parametrize(
    ("size", "rules", "message"),
    [
        ((512, 512), {"step": 1}, "bucket_reso_steps must be a multiple of 8, got 1"),
        ((192, 512), {}, "192,512 has a side below min_bucket_reso, 256"),
        ((2048, 512), {}, "2048,512 has a side above max_bucket_reso, 1024"),
        ((514, 512), {"buckets": False}, "must be multiples of 8, got 514,512"),
        ((1024, 1024), {"enlarges": False, "step": 8}, "bucket_reso_steps 8 has too many sizes; write 64"),
    ],
)
def test_impossible_sizes_are_refused(size: tuple[int, int], rules: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_of_sizes(*size, **{"buckets": True, **USUAL, **rules})


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", (512, 512)), ("512,768", (512, 768)), ("1024, 1024", (1024, 1024)), ("512x768", (512, 768))],
)
def test_resolution_is_a_side_or_width_and_height(text: str, size: tuple[int, int]) -> None:
    assert parse_resolution(text) == size


@pytest.mark.parametrize("text", ["a", "512,", "1,2,3", "32", "512;768", "99999", "-512"])
def test_other_resolutions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_resolution(text)


def come_back(settings: dict[str, Any]) -> dict[str, Any]:
    """The options of settings, as arguments of `settings_of_sizes`."""
    buckets = {path.removeprefix("buckets."): value for path, value in settings.items() if path.startswith("buckets.")}
    options = write_sizes(settings["resolution"], BucketSettings(**buckets))
    width, height = parse_resolution(options["resolution"])
    return {
        "width": width, "height": height, "buckets": options.get("enable_bucket", False),
        "least": options.get("min_bucket_reso", 256), "most": options.get("max_bucket_reso", 1024),
        "step": options.get("bucket_reso_steps", 64), "enlarges": not options.get("bucket_no_upscale", False),
    }  # fmt: skip


@pytest.mark.parametrize("size", [(512, 512), (768, 512), (576, 832), (640, 640)])
@pytest.mark.parametrize("rules", [{"buckets": False}, {"buckets": True}, {"buckets": True, "enlarges": False},
                                   {"buckets": True, "least": 320, "most": 896, "step": 32}])  # fmt: skip
def test_sizes_have_the_options_that_give_them(size: tuple[int, int], rules: dict[str, Any]) -> None:
    settings = settings_of_sizes(*size, **{**USUAL, **rules})
    assert settings_of_sizes(**come_back(settings)) == settings


@pytest.mark.parametrize(
    ("buckets", "least", "most"),
    [({}, 320, 768), ({"max_aspect": 1.0}, 512, 512), ({"shape": "table"}, 256, 1024),
     ({"shape": "list", "sizes": [[512, 512], [384, 768]], "step": 128}, 256, 768)],
)  # fmt: skip
def test_other_shapes_are_a_range_of_about_the_same_sides(buckets: dict[str, Any], least: int, most: int) -> None:
    options = write_sizes(512, BucketSettings(**buckets))
    assert (options["min_bucket_reso"], options["max_bucket_reso"], options["resolution"]) == (least, most, "512")
