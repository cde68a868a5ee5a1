"""Fills the latent cache with condition images (`data.conditions`), each placed as its sample, and reads them for text
encoders that see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint.data.buckets import buckets
from mezzotint.data.cache.entries import LatentCache
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.loading.reading import BROKEN, read_image, read_whole
from mezzotint.data.loading.worker import to_pixels
from mezzotint.data.schedule import placement
from mezzotint.errors import DatasetError
from mezzotint.families.base import ModelFamily
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size, TextImages
from mezzotint.stages import Placement
from mezzotint.tasks.cache._encoding import Encoding


@dataclass(frozen=True, slots=True)
class Absent:
    """A condition image that is not in the cache. address: of its entry. images, row: its catalogue, and its row."""

    address: bytes
    images: Catalogue
    row: int
    placed: Placement


def fill(
    catalogue: Catalogue,
    settings: DataSettings,
    latents: LatentCache,
    rows: NDArray[np.int32],
    *,
    load: Callable[[], ModelFamily],
    encoding: Encoding,
    device: torch.device,
) -> int:
    """Stores the missing condition images of these rows, whose latents are cached already. load: the family with its
    autoencoder; called only if something is missing. Returns their number. Raises DatasetError as reading does, E1251
    for a file that changed without a change of size and times."""
    if not catalogue.conditions:
        return 0
    table, family, count = buckets.table(settings), None, 0
    of_rows = catalogue.buckets_of(rows, settings)
    for number in np.unique(of_rows.bucket).tolist():
        of_bucket = rows[of_rows.sample[of_rows.bucket == number]]
        absent = _list_absent(catalogue, settings, latents, of_bucket, table[number])
        if not absent:
            continue
        family = family or encoding.set_memory_format(load())
        count += _encode(absent, settings, latents, family, encoding, device)
    return count


def _list_absent(
    catalogue: Catalogue, settings: DataSettings, latents: LatentCache, rows: NDArray[np.int32], bucket: Size
) -> dict[bytes, Absent]:
    needed: dict[bytes, Absent] = {}
    for row, view in product(rows.tolist(), range(latents.views)):
        placed = latents.placement(catalogue, row, view, bucket)
        for name, paired in catalogue.conditions.items():
            if (image := int(paired.rows[row])) >= 0:
                own = placement.of_condition(catalogue, row, name, placed, settings)
                address = latents.condition_address(paired.images, image, own)
                needed[address] = Absent(address, paired.images, image, own)
    return {address: one for address, one in needed.items() if not _is_stored(latents, one)}


def _is_stored(latents: LatentCache, one: Absent) -> bool:
    store = latents.condition_store(one.placed.bucket)
    assert store is not None, "latents were filled before"
    return bool(store.has([one.address], checks=True)[0])


def _encode(
    absent: dict[bytes, Absent], settings: DataSettings, latents: LatentCache, family: ModelFamily, encoding: Encoding,
    device: torch.device,
) -> int:  # fmt: skip
    def mean_of(item: tuple[Absent, Tensor]) -> Tensor:
        return family.encode_media(to_pixels(item[1][None], device)).chunk(2, dim=1)[0]

    count = 0
    with closing(encoding.run(mean_of, _read_all(absent, settings), at_once=64)) as encoded:
        for (one, _), mean in encoded:
            store = latents.condition_store(one.placed.bucket)
            assert store is not None
            store.append([one.address], mean, names=[str(one.images.path(one.row))], at_once=False)
            count += 1
    return count


def read_whole_images(
    catalogue: Catalogue, row: int, seen: TextImages, settings: DataSettings
) -> tuple[Tensor | None, ...] | None:
    """The condition images of a row as a text encoder sees them, None for a missing one; None for a row with a corrupt
    one where `data.on_corrupt` allows it. Raises as `fill`."""
    whole: list[Tensor | None] = []
    for paired in catalogue.conditions.values():
        image = int(paired.rows[row])
        if image < 0:
            whole.append(None)
            continue
        try:
            whole.append(read_whole(paired.images, image, seen, settings))
        except DatasetError as error:
            if error.code == BROKEN and settings.on_corrupt == "zero_weight":
                return None
            raise
        _require_unchanged(paired.images, image)
    return tuple(whole)


def _require_unchanged(images: Catalogue, row: int) -> None:
    if not images.verify(row):
        raise DatasetError(
            f"{images.path(row)}: its content differs from the index, although its size and times are the same; "
            "`touch` the file and start again",
            code="E1251",
        )


def _read_all(absent: dict[bytes, Absent], settings: DataSettings) -> Iterator[tuple[Absent, Tensor]]:
    for one in absent.values():
        try:
            pixels = read_image(one.images, one.row, one.placed, settings)
        except DatasetError as error:
            if error.code == BROKEN and settings.on_corrupt == "zero_weight":
                continue
            raise
        _require_unchanged(one.images, one.row)
        yield one, torch.from_numpy(pixels)
