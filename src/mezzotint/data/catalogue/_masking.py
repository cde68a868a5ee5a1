"""Looking at mask files, when a data set is indexed: each is decoded once, and fits its picture or is refused."""

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
from mezzotint.settings.counting import counted, listed

COLUMN = "mask"


def looked_at(paths: Texts, sizes: NDArray[Any], max_pixels: int, workers: int) -> dict[str, NDArray[Any]]:
    """The columns `mask`, paths of masks, empty for none, and `mask_digest`, (n, 32) uint8, SHA-256 of their bytes;
    none at all where no picture has a mask.

    sizes: (n, 2), width and height of the pictures as they are shown. Raises DatasetError E1476 for masks that are not
    as large as their pictures, E1477 for one that cannot be read.
    """
    rows = [i for i in range(len(paths)) if paths[i]]
    if not rows:
        return {}
    digests = np.zeros((len(paths), 32), np.uint8)
    unfit: list[str] = []
    with ThreadPoolExecutor(workers, thread_name_prefix="masks") as pool:
        probes = pool.map(partial(_probed, max_pixels=max_pixels), (Path(paths[i]) for i in rows))
        for i, probe in zip(rows, probes, strict=True):
            digests[i] = np.frombuffer(probe.digest, np.uint8)
            if (probe.size.width, probe.size.height) != tuple(sizes[i].tolist()):
                unfit.append(f"{paths[i]} is {probe.size}, its picture {sizes[i][0]}×{sizes[i][1]}")
    if unfit:
        raise DatasetError(
            f"{counted(len(unfit), 'mask')} of another size than the picture: {listed(unfit, 10)}; make them as large "
            "as their pictures are shown, or take them away",
            code="E1476",
        )
    return {**paths.columns(COLUMN), f"{COLUMN}_digest": digests}


def _probed(path: Path, max_pixels: int) -> decoding.Probe:
    try:
        return decoding.probe(path, max_pixels)
    except DatasetError as error:
        raise DatasetError(
            f"mask {error.message}; mend it, or take it away, and its picture counts whole", code="E1477"
        ) from error


def notes(sources: Sequence[Source]) -> list[Noted]:
    """What the report says of masks that no picture has asked for, and of files that are trained as pictures and have
    the names of masks."""
    noted = [
        Noted(path, "a mask of no picture") for source in sources if source.masks for path in source.masks.unused()
    ]
    for source in sources:
        count = 0 if source.masks else sum(map(is_named_mask, source.listing.names))
        if count:
            what = f"{counted(count, 'file')} called NAME{ENDING}.png: trained as pictures; data.mask.source=files"
            noted.append(Noted(str(source.root), f"{what} takes them for masks"))
    return noted
