"""The address with which other processes open the catalogue that one has built."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

from mezzotint.data.catalogue.catalogue import Catalogue, joined_images_settings, sets_of, with_conditions
from mezzotint.data.files.columns import DamagedColumns
from mezzotint.settings.sections import condition_sets
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size


def to_address(catalogue: Catalogue) -> str:
    """The address with which another process opens the catalogue, as ASCII."""
    joined_images = to_address(catalogue.joined_images) if catalogue.joined_images is not None else ""
    sizes = [(size.width, size.height) for size in catalogue.sizes]
    roots = list(map(os.fspath, catalogue.roots))
    of_conditions = {name: to_address(paired.images) for name, paired in catalogue.conditions.items()}
    beside = joined_images, sizes, of_conditions
    return json.dumps([os.fspath(catalogue.folder), roots, catalogue.fingerprint, *beside])


def at_address(address: str, settings: DataSettings) -> Catalogue | None:
    """Opens the data set of these settings that another process has indexed. None if its index is not on this machine,
    or if one of 64 files, spread over all, differs on this machine: this process must then index it itself."""
    folder, roots, fingerprint, stills_address, sizes, of_conditions = json.loads(address)
    images = {
        name: at_address(of_name, condition_sets.images_settings(settings, name))
        for name, of_name in of_conditions.items()
    }
    joined_images = at_address(stills_address, joined_images_settings(settings)) if stills_address else None
    try:
        catalogue = Catalogue.open(Path(folder), [Path(root) for root in roots])
    except (FileNotFoundError, DamagedColumns):
        return None
    known = {name: of_name for name, of_name in images.items() if of_name is not None}
    is_complete = bool(stills_address) == (joined_images is not None) and len(known) == len(images)
    if not is_complete or not all(map(catalogue.is_as_indexed, _spread(len(catalogue), 64))):
        return None
    sizes = tuple(Size(width, height) for width, height in sizes)
    catalogue = replace(catalogue, joined_images=joined_images, sizes=sizes, sets=sets_of(settings))
    return replace(with_conditions(catalogue, known, settings) if known else catalogue, fingerprint=fingerprint)


def _spread(count: int, at_most: int) -> list[int]:
    return sorted({count * i // at_most for i in range(at_most)}) if count else []
