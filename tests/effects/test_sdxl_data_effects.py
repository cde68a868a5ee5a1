"""Rows of the section `data` for SDXL: listed sizes, resizing without antialiasing, micro-conditioning."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mezzotint.errors import RecipeError

Make = Callable[..., Any]


# breaks if the list is not read, its numbers are taken for width and height, or resolution has an effect
@pytest.mark.effect("data.buckets.sizes")
def test_sizes_are_the_buckets(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(100, 100), (130, 100), (100, 300)])
    batches = feed(folder, buckets={"shape": "list", "sizes": "[[32, 32], [64, 24]]"}, resolution=512).batches()
    assert {tuple(b.pixels.shape[2:]) for b in batches} == {(32, 32), (64, 24)}
    assert {tuple(line) for b in batches for line in b.target_size.tolist()} == {(32, 32), (64, 24)}


# breaks if the model gets another crop than the one drawn in a bucket of the list
@pytest.mark.effect("data.buckets.sizes")
def test_recorded_crop_equals_the_applied_crop(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(64, 32), (48, 64)])
    fed = feed(folder, buckets={"shape": "list", "sizes": "[[32, 40], [40, 32]]"}, crop="random", steps=12)
    seen = set()
    for batch in fed.batches():
        for number, key in enumerate(batch.keys):
            height, width = batch.target_size[number].tolist()
            top, left = batch.crop_top_left[number].tolist()
            with Image.open(folder / key) as image:
                scale = max(width / image.width, height / image.height)
                whole = image.resize((int(image.width * scale), int(image.height * scale)), Image.Resampling.LANCZOS)
                cut = np.asarray(whole.crop((left, top, left + width, top + height)))
            assert np.array_equal(np.rint((batch.pixels[number].numpy() + 1) * 127.5), cut.transpose(2, 0, 1))
            seen.add((key, top, left))
    assert len(seen) > 6


# breaks if false has no effect, or antialiased filters accept it
@pytest.mark.effect("data.antialias")
def test_antialias_off_samples_few_pixels(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(192, 192)])
    pixels = {
        (name, smooth): feed(folder, resize=name, antialias=smooth).batches()[0].pixels
        for name in ("bicubic", "bilinear") for smooth in (True, False)
    }  # fmt: skip
    for name in ("bicubic", "bilinear"):
        # noise of deviation 0.58: averaged over 36 pixels each, or over few
        assert pixels[name, True].std() < 0.2 < 0.25 < pixels[name, False].std()
    with pytest.raises(RecipeError, match=r"data\.antialias=false does not work with data\.resize=lanczos"):
        feed(folder, antialias=False)


# breaks if "area" is Pillow's box
@pytest.mark.effect("data.resize")
def test_area_filter_is_the_mean_of_covered_pixels(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [(48, 48)])
    [batch] = feed(folder, resize="area").batches()
    with Image.open(folder / "000.png") as image:
        fine = np.asarray(image).astype(float).repeat(2, axis=0).repeat(2, axis=1)
    mean = fine.reshape(32, 3, 32, 3, 3).mean(axis=(1, 3)).transpose(2, 0, 1)
    assert np.abs((batch.pixels[0].numpy() + 1) * 127.5 - mean).max() <= 0.5001


# breaks if the rotation is not undone, or undone for an image that is only mirrored
@pytest.mark.effect("data.original_size")
@pytest.mark.parametrize(("orientation", "stored"), [(1, [40, 64]), (3, [40, 64]), (6, [64, 40]), (8, [64, 40])])
def test_original_size_is_before_or_after_exif_rotation(
    orientation: int, stored: list[int], feed: Make, tmp_path: Path
) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.new("RGB", (stored[1], stored[0])).save(folder / "a.jpg", exif=exif)
    (folder / "a.txt").write_text("a picture")
    sizes = {
        kind: [b.original_size.tolist() for b in feed(folder, original_size=kind).batches()]
        for kind in ("oriented", "stored")
    }
    assert sizes == {"oriented": [[[40, 64]]], "stored": [[stored]]}


# breaks if the order is still random, or batches of several sizes are ordered by size
@pytest.mark.effect("data.shuffle")
def test_without_shuffling_mixed_sizes_keep_listing_order(feed: Make, noisy: Make, tmp_path: Path) -> None:
    folder = noisy(tmp_path / "one", [((64, 32), (32, 32), (32, 64))[number % 3] for number in range(12)])

    def keys(**settings: Any) -> list[int]:
        return [int(key[:3]) for batch in feed(folder, batch_size=2, **settings).batches() for key in batch.keys]

    listed = keys(shuffle=False)
    assert listed == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert keys(shuffle=False, seed=7, steps=12) == listed * 2
    assert keys(shuffle=False, buckets__shape="square") == list(range(12))
    assert keys(shuffle=False, buckets__shape="square", repeats=2) == [n for n in range(12) for _ in range(2)]
    assert keys(seed=1) != keys(seed=2)
    assert sorted(keys(seed=1)) == list(range(12))
