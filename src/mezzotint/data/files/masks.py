"""Mask files, and which picture each belongs to (`data.mask`). Told by names alone; nothing is opened."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mezzotint.data.files.listing import Listing, is_remote, walk
from mezzotint.errors import DatasetError

ENDING = "-masklabel"
"""What the name of a mask has behind its picture's, as OneTrainer writes it: `fox-masklabel.png` of `fox.jpg`."""


@dataclass(slots=True)
class Masks:
    """The masks of a folder of pictures. listing: their files. of_names: the number of each by the name of its picture
    without ending. used: names that were asked for and had one."""

    listing: Listing
    of_names: dict[str, int]
    used: set[str] = field(default_factory=set)

    def of(self, name: str) -> Path | None:
        """The mask of a picture, by its name relative to its folder; None without one."""
        stem = os.path.splitext(name)[0]
        number = self.of_names.get(stem)
        if number is None:
            return None
        self.used.add(stem)
        return self.listing.root / self.listing.names[number]

    def unused(self) -> list[str]:
        """The masks that no picture has asked for, by path, sorted."""
        left = (number for stem, number in self.of_names.items() if stem not in self.used)
        return sorted(os.fspath(self.listing.root / self.listing.names[number]) for number in left)


def parted(
    listing: Listing, folder: Path | None, folders: Collection[Path], suffixes: Collection[str], *, is_listed: bool
) -> tuple[Listing, Masks]:  # fmt: skip
    """The files of a folder that are no masks, and the masks: those that lie among them, or in a folder of their own.

    folders: all of `data.mask.path`, which may lie inside the pictures' folder. suffixes: of pictures. is_listed:
    whether the listing has pictures; one of clips has none. Raises DatasetError E1201 for a folder that is not there,
    E1446 for object storage, E1477 for two masks of one picture.
    """
    if is_remote(listing.root):
        raise DatasetError(
            f"{listing.root}: masks are read from files of this machine's disks; write data.mask.source=alpha, or "
            "bring the data set here",
            code="E1446",
        )
    beside = [is_named_mask(name) for name in listing.names]
    if folder is not None:
        masks = _named(folder, suffixes)
    elif is_listed:
        masks = _some(listing, beside)
    else:
        masks = walk(listing.root, {".png"})
        masks = _some(masks, [is_named_mask(name) for name in masks.names])
    for place in (one.expanduser().resolve() for one in folders):
        if place.is_relative_to(listing.root) and place != listing.root:
            inside = f"{place.relative_to(listing.root).as_posix()}/"
            beside = [is_mask or name.startswith(inside) for is_mask, name in zip(beside, listing.names, strict=True)]
    of_names: dict[str, int] = {}
    for number, name in enumerate(masks.names):
        stem = os.path.splitext(name)[0].removesuffix(ENDING)
        if (other := of_names.setdefault(stem, number)) != number:
            raise DatasetError(
                f"{masks.root / masks.names[other]} and {masks.root / name} are masks of one picture; keep one of them",
                code="E1477",
            )
    return _some(listing, [not one for one in beside]), Masks(masks, of_names)


def _named(folder: Path, suffixes: Collection[str]) -> Listing:
    try:
        return walk(folder, suffixes)
    except DatasetError as error:
        what = error.message.rpartition("; ")[0]
        raise DatasetError(f"data.mask.path: {what}; it names the folder of masks", code=error.code) from error


def is_named_mask(name: str) -> bool:
    """Whether a file beside pictures is a mask by its name."""
    return os.path.splitext(name)[0].endswith(ENDING) and name.lower().endswith(".png")


def _some(listing: Listing, chosen: list[bool]) -> Listing:
    names = [name for name, is_chosen in zip(listing.names, chosen, strict=True) if is_chosen]
    return replace(listing, names=names, stats=listing.stats[np.array(chosen, dtype=np.bool_)])
