"""Similar images are found among many, and different ones are not."""

from __future__ import annotations

import io
import sys
import time

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from mezzotint.data.catalogue import likeness
from mezzotint.data.catalogue.likeness import Looks
from mezzotint.errors import DatasetError


def scene(seed: int, size: tuple[int, int] = (96, 96)) -> Image.Image:
    """An image of soft spots."""
    spots = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), np.uint8)
    return Image.fromarray(spots).resize(size, Image.Resampling.BICUBIC)


def pairs_of(*images: Image.Image) -> set[tuple[int, int]]:
    looks = Looks.empty(len(images))
    for row, image in enumerate(images):
        looks.put(row, image)
    return {pair[:2] for pair in likeness.near_pairs(looks)}


def test_copy_is_found_after_resizing_compression_and_brightening() -> None:
    first, file = scene(1), io.BytesIO()
    first.save(file, "JPEG", quality=40)
    smaller, lighter = first.resize((50, 50)), ImageEnhance.Brightness(first).enhance(1.08)
    pairs = pairs_of(first, scene(2), Image.open(file), scene(3), smaller, lighter)
    assert {row for pair in pairs for row in pair} == {0, 2, 4, 5}
    assert pairs_of(*map(scene, range(20))) == set()


def test_plain_images_are_compared_by_colour() -> None:
    plain = [Image.new("RGB", (40, 30), colour) for colour in ("#ff0000", "#00ff00", "#fd0202", "#ffffff", "#000000")]
    assert pairs_of(*plain, scene(1)) == {(0, 2)}


def test_pairs_are_sorted_by_distance() -> None:
    shades = np.zeros((5, 8, 8, 3), np.uint8)
    shades[1:] = np.arange(1, 5, dtype=np.uint8)[:, None, None, None] * 50
    shades[3], shades[4] = shades[2] + 2, shades[0] + 5
    looks = Looks(np.array([1, 7, 2**63, 2**63 + 1, 3], np.uint64), shades)
    assert likeness.near_pairs(looks) == [(2, 3, 2.0), (0, 4, 5.0)]
    assert likeness.near_pairs(looks, 1) == [(2, 3, 2.0)]


def test_exactly_the_pairs_within_seven_bits_are_found() -> None:
    rng = np.random.default_rng(5)
    base = rng.integers(0, 2**64, 300, np.uint64)
    apart = rng.integers(0, 13, 300)
    for i in range(300):
        flips = [np.uint64(1) << np.uint64(bit) for bit in rng.choice(64, int(apart[i]), replace=False).tolist()]
        base = np.append(base, np.bitwise_xor.reduce(np.array([base[i], *flips], np.uint64)))
    looks = Looks(base, np.zeros((600, 8, 8, 3), np.uint8))
    assert {pair[:2] for pair in likeness.near_pairs(looks)} == {(i, 300 + i) for i in range(300) if apart[i] <= 7}


def test_time_does_not_grow_with_the_square_of_the_number_of_images() -> None:
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**64, 20_000, np.uint64)
    hashes[10_000:10_100] = hashes[:100] ^ np.uint64(0b1001 << 30)
    hashes[12_000:14_000] = hashes[1]  # equal hashes give one pair each, not one for every two of them
    start = time.process_time()
    assert len(likeness.near_pairs(Looks(hashes, np.zeros((20_000, 8, 8, 3), np.uint8)))) == 100 + 2000
    # all with one band in common, as frames of one film
    film = np.uint64(77 << 48) + np.arange(4000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A) % np.uint64(2**48)
    likeness.near_pairs(Looks(film, np.zeros((4000, 8, 8, 3), np.uint8)))
    assert time.process_time() - start < 4  # 0.2 s on an idle core


def test_missing_library_is_reported_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imagehash", None)
    with pytest.raises(DatasetError, match=r"pip install 'mezzotint\[doctor\]'") as error:
        likeness.require_library()
    assert error.value.code == "E1970"
