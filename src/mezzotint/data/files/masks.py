"""Mask files and their images (`data.mask`), matched by names only; no file is opened."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from mezzotint.data.files.listing import Listing, is_remote, select, walk, without_folders
from mezzotint.errors import DatasetError

ENDING = "-masklabel"
"""Suffix of a mask's name after its image's, as in OneTrainer: `fox-masklabel.png` for `fox.jpg`."""


@dataclass(slots=True)
class Masks:
    """The masks of a folder of images. listing: their files. of_names: the number of each by the name of its image
    without extension. used: names for which a mask was returned."""

    listing: Listing
    of_names: dict[str, int]
    used: set[str] = field(default_factory=set)

    def of(self, name: str) -> Path | None:
        """The mask of an image, by its name relative to its folder; None without one."""
        stem = os.path.splitext(name)[0]
        number = self.of_names.get(stem)
        if number is None:
            return None
        self.used.add(stem)
        return self.listing.root / self.listing.names[number]

    def list_unused(self) -> list[str]:
        """The paths of masks without an image, sorted."""
        left = (number for stem, number in self.of_names.items() if stem not in self.used)
        return sorted(os.fspath(self.listing.root / self.listing.names[number]) for number in left)


def split_masks(
    listing: Listing, folder: Path | None, folders: Collection[Path], suffixes: Collection[str], *, is_listed: bool
) -> tuple[Listing, Masks]:  # fmt: skip
    """Splits a listing into the files that are not masks, and the masks, which are among them or in a separate folder.

    folders: all of `data.mask.path`, which may be inside the images' folder. suffixes: of images. is_listed: whether
    the listing contains images; one of clips does not. Raises DatasetError E1201 for a missing folder, E1446 for object
    storage, E1477 for two masks of one image.
    """
    if is_remote(listing.root):
        raise DatasetError(
            f"{listing.root}: masks are read from local disks only; set data.mask.source=alpha, or download the data "
            "set",
            code="E1446",
        )
    is_mask_file = [is_named_mask(name) for name in listing.names]
    if folder is not None:
        masks = _list_masks(folder, suffixes)
    elif is_listed:
        masks = select(listing, is_mask_file)
    else:
        masks = walk(listing.root, {".png"})
        masks = select(masks, [is_named_mask(name) for name in masks.names])
    of_names: dict[str, int] = {}
    for number, name in enumerate(masks.names):
        stem = os.path.splitext(name)[0].removesuffix(ENDING)
        if (other := of_names.setdefault(stem, number)) != number:
            raise DatasetError(
                f"{masks.root / masks.names[other]} and {masks.root / name} are masks of one image; keep one of them",
                code="E1477",
            )
    images = select(listing, [not is_mask for is_mask in is_mask_file])
    return without_folders(images, folders), Masks(masks, of_names)


def _list_masks(folder: Path, suffixes: Collection[str]) -> Listing:
    try:
        return walk(folder, suffixes)
    except DatasetError as error:
        problem = error.message.rpartition("; ")[0]
        raise DatasetError(f"data.mask.path: {problem}; set it to the folder of masks", code=error.code) from error


def is_named_mask(name: str) -> bool:
    """Whether a file next to images is a mask, by its name."""
    return os.path.splitext(name)[0].endswith(ENDING) and name.lower().endswith(".png")
