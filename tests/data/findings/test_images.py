"""Findings about images: cropped shares and copies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mezzotint.data.catalogue.catalogue import build
from mezzotint.data.findings import images
from support.data_sets import small_of as settings_of
from support.image_catalogues import paint


def test_seen_share_is_the_share_of_the_bucket(root: Path, index: Path) -> None:
    for number, size in enumerate([(64, 64), (256, 64), (64, 256)]):
        paint(root, 1, start=number, size=size)
    settings = settings_of(root, buckets={"step": 8, "shape": "square"})
    shares = images.seen_shares(build(settings, index), [0, 1, 2], settings)
    assert shares.tolist() == pytest.approx([1, 0.25, 0.25])


def test_copies_are_found_with_their_first_image(painted: Path, index: Path) -> None:
    for name in ("a", "b"):
        shutil.copy(painted / "003.png", painted / f"{name}.png")
        (painted / f"{name}.txt").write_text("a copy")
    (painted / "twice.txt").write_text("of one file")
    assert images.find_copies(build(settings_of(painted), index)) == {6: 3, 7: 3}


def test_image_in_its_own_size_is_cropped_on_both_sides_and_never_enlarged(root: Path, index: Path) -> None:
    for number, size in enumerate([(64, 64), (95, 95), (90, 64), (640, 320)]):
        paint(root, 1, start=number, size=size)
    settings = settings_of(root, resolution=128, buckets={"step": 32, "shape": "own"})
    catalogue = build(settings, index)
    shares = images.seen_shares(catalogue, [0, 1, 2, 3], settings)
    assert shares.tolist() == pytest.approx([1, 64 * 64 / 95**2, 64 / 90, 1])
    assert (images.enlargements(catalogue, [0, 1, 2, 3], settings) <= 1).all()
