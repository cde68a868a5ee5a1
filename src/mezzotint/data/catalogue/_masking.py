"""Checks mask files when a data set is indexed: each is decoded once and must have the size of its image."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.files.columns import Texts
from mezzotint.data.files.masks import ENDING, is_named_mask
from mezzotint.data.formats.base import Noted, Source
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import format_count, format_names

COLUMN = "mask"


def probe_masks(paths: Texts, sizes: NDArray[Any], max_pixels: int, workers: int) -> dict[str, NDArray[Any]]:
    """The columns `mask`, paths of masks, empty for none, and `mask_digest`, (n, 32) uint8, SHA-256 of their bytes; an
    empty dict if no image has a mask.

    sizes: (n, 2), displayed width and height of the images. Raises DatasetError E1476 for masks of another size than
    their images, E1477 for one that cannot be read.
    """
    rows = [i for i in range(len(paths)) if paths[i]]
    if not rows:
        return {}
    digests = np.zeros((len(paths), 32), np.uint8)
    unfit: list[str] = []
    with ThreadPoolExecutor(workers, thread_name_prefix="masks") as pool:
        probes = pool.map(partial(_probe, max_pixels=max_pixels), (Path(paths[i]) for i in rows))
        for i, probe in zip(rows, probes, strict=True):
            digests[i] = np.frombuffer(probe.digest, np.uint8)
            if (probe.size.width, probe.size.height) != tuple(sizes[i].tolist()):
                unfit.append(f"{paths[i]} is {probe.size}, its image {sizes[i][0]}×{sizes[i][1]}")
    if unfit:
        raise DatasetError(
            f"{format_count(len(unfit), 'mask')} of another size than the image: {format_names(unfit, 10)}; "
            "resize them to the "
            "displayed size of their images, or remove them",
            code="E1476",
        )
    return {**paths.columns(COLUMN), f"{COLUMN}_digest": digests}


def _probe(path: Path, max_pixels: int) -> decoding.Probe:
    try:
        return decoding.probe(path, max_pixels)
    except DatasetError as error:
        raise DatasetError(
            f"mask {error.message}; repair it, or remove it to train the whole image", code="E1477"
        ) from error


def notes(sources: Sequence[Source]) -> list[Noted]:
    """Notes for the report: masks without an image, and files trained as images that have the name of a mask."""
    notes = [
        Noted(path, "a mask without an image")
        for source in sources
        if source.masks
        for path in source.masks.list_unused()
    ]
    for source in sources:
        count = 0 if source.masks else sum(map(is_named_mask, source.listing.names))
        if count:
            text = f"{format_count(count, 'file')} called NAME{ENDING}.png: trained as images; data.mask.source=files"
            notes.append(Noted(str(source.root), f"{text} uses them as masks"))
    return notes
