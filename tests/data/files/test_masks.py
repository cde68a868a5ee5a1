"""Recognising masks and their images by file names."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.data.files import masks
from mezzotint.data.files.listing import Listing
from mezzotint.errors import DatasetError


def listing_of(root: Path, *names: str) -> Listing:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    return Listing.of_files(root, names)


def test_mask_files_next_to_images_are_not_samples(tmp_path: Path) -> None:
    listing = listing_of(tmp_path, "a.jpg", "a-masklabel.png", "b.png", "c-masklabel.jpg", "d-masklabel.PNG")
    images, of_images = masks.split_masks(listing, None, (), {".png", ".jpg"}, is_listed=True)
    assert images.names == ["a.jpg", "b.png", "c-masklabel.jpg"], "a mask next to an image must be a PNG"
    assert len(images.stats) == 3
    assert of_images.of("a.jpg") == tmp_path / "a-masklabel.png"
    assert of_images.of("b.png") is None
    assert of_images.list_unused() == [str(tmp_path / "d-masklabel.PNG")]


def test_masks_in_a_folder_are_matched_by_name(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    listing = listing_of(root, "a.jpg", "masks/a.png", "masks/sub/b.png", "sub/b.jpg")
    images, of_images = masks.split_masks(listing, root / "masks", [root / "masks"], {".png", ".jpg"}, is_listed=True)
    assert images.names == ["a.jpg", "sub/b.jpg"], "a folder of masks below the images is left out"
    assert of_images.of("a.jpg") == root / "masks" / "a.png"
    assert of_images.of("sub/b.jpg") == root / "masks" / "sub" / "b.png"


def test_two_masks_of_one_image_are_refused(tmp_path: Path) -> None:
    listing_of(tmp_path / "masks", "a.png", "a-masklabel.png")
    with pytest.raises(DatasetError, match="are masks of one image") as caught:
        masks.split_masks(listing_of(tmp_path / "photos", "a.jpg"), tmp_path / "masks", (), {".png"}, is_listed=True)
    assert caught.value.code == "E1477"
    with pytest.raises(DatasetError, match=r"data\.mask\.path: .*nowhere"):
        masks.split_masks(listing_of(tmp_path / "photos", "a.jpg"), tmp_path / "nowhere", (), {".png"}, is_listed=True)
