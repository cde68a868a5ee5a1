"""Fills the latent cache with masks, pooled once for each placement, so a cached run opens no mask file."""

from __future__ import annotations

from itertools import islice, product

import numpy as np
import torch
from numpy.typing import NDArray

from mezzotint.data.buckets import buckets
from mezzotint.data.cache.entries import LatentCache, has_mask
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.loading.reading import BROKEN, read_mask
from mezzotint.data.media import decoding
from mezzotint.diffusion.masking import pool_mask
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Placement

_AT_ONCE = 64


def fill(catalogue: Catalogue, settings: DataSettings, latents: LatentCache, rows: NDArray[np.int32]) -> int:
    """Stores the missing masks of these rows, whose latents are cached already. Returns their number. Raises
    DatasetError E1251 for a mask file that changed without a change of size and times, and as reading does."""
    if not settings.has_masks:
        return 0
    table, done = buckets.table(settings), 0
    of_rows = catalogue.buckets_of(rows, settings)
    for number in np.unique(of_rows.bucket).tolist():
        store = latents.mask_store(table[number])
        assert store is not None, "latents were filled before"
        placed = {}
        for row, view in product(rows[of_rows.sample[of_rows.bucket == number]].tolist(), range(latents.views)):
            if has_mask(catalogue, row, settings):
                placement = latents.placement(catalogue, row, view, table[number])
                placed[latents.mask_address(catalogue, row, placement)] = row, placement
        present = store.has(list(placed), checks=True) if placed else ()
        absent = iter([address for address, is_present in zip(placed, present, strict=True) if not is_present])
        while batch := list(islice(absent, _AT_ONCE)):
            masks = {address: _read(catalogue, *placed[address], settings) for address in batch}
            whole = {address: mask for address, mask in masks.items() if mask is not None}
            if whole:
                pixels = torch.stack(list(whole.values()))
                done += store.append(list(whole), pool_mask(pixels, *store.shape[1:])[:, None], at_once=False)
    return done


def _read(catalogue: Catalogue, row: int, placed: Placement, settings: DataSettings) -> torch.Tensor | None:
    """The mask; None for a corrupt image with `data.on_corrupt=zero_weight`."""
    path, digests = catalogue.overrides.mask_of(row), catalogue.overrides.mask_digest
    if path is not None and digests is not None and decoding.digest_of(path) != bytes(digests[row]):
        raise DatasetError(
            f"{path}: its content differs from the index, although its size and times are the same; `touch` the file "
            "and start again",
            code="E1251",
        )
    try:
        return torch.from_numpy(read_mask(catalogue, row, placed, settings))
    except DatasetError as error:
        if error.code == BROKEN and settings.on_corrupt == "zero_weight":
            return None
        raise
