"""Reads and places images, masks and frames of a catalogue's rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint.data.media import clip_files, clip_transforms, decoding, timeouts
from mezzotint.data.schedule.clip_visits import Instants
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size, TextImages
from mezzotint.stages import Placement

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue

BROKEN = "E1831"
"""The error code of an image that was not decoded when it was indexed, and is corrupt."""


def read_image(catalogue: Catalogue, row: int, placed: Placement, settings: DataSettings) -> NDArray[np.uint8]:
    """Reads and places the image of a row, (3, H, W). Raises DatasetError with file and sample: E1250 if it cannot be
    read any more, E1831 if it was not decoded before (`data.verify`) and is corrupt, E1233 after
    `data.decode_timeout`."""
    path = catalogue.local_path(row, keep_gb=settings.cache.fetched_gb)
    decode = partial(
        decoding.decode_image,
        path,
        placed,
        resize=settings.resize,
        antialias=settings.antialias,
        background=settings.background,
        max_pixels=settings.max_pixels,
        scaled=settings.decode == "scaled",
        region=catalogue.overrides.region_of(row),
    )
    with _still_readable(catalogue, row, settings):
        return timeouts.run_with_timeout(settings.decode_timeout, f"{catalogue.key(row)!r} ({path})", decode)


def read_whole(images: Catalogue, row: int, seen: TextImages, settings: DataSettings) -> Tensor:
    """Reads a condition image as a text encoder sees it: whole, in its own shape, uint8 (3, H, W). Raises as
    `read_image`."""
    size = seen.fit(Size(int(images.width[row]), int(images.height[row])))
    return torch.from_numpy(read_image(images, row, Placement(size, size, (0, 0)), settings))


def read_mask(catalogue: Catalogue, row: int, placed: Placement, settings: DataSettings) -> NDArray[np.uint8]:
    """Reads and places the mask of a row, (H, W), for a row that `has_mask`. Raises as `read_image`."""
    mask_path = catalogue.overrides.mask_of(row)
    with _still_readable(catalogue, row, settings):
        path = mask_path or catalogue.local_path(row, keep_gb=settings.cache.fetched_gb)
        region = catalogue.overrides.region_of(row)
        decode = partial(
            decoding.mask,
            path,
            placed,
            is_alpha=mask_path is None,
            max_pixels=settings.max_pixels,
            region=region,
        )
        return timeouts.run_with_timeout(settings.decode_timeout, f"{catalogue.key(row)!r} ({path})", decode)


def read_frames(catalogue: Catalogue, row: int, placed: Placement, times: Instants, settings: DataSettings) -> Tensor:
    """Reads and places the frames of a row at `times`, uint8 (3, F, H, W); (3, 1, H, W) for an image, which has no
    times. Raises as `read_image`."""
    path = catalogue.local_path(row, keep_gb=settings.cache.fetched_gb)
    each = clip_transforms.frame_transform(placed, resize=settings.resize, antialias=settings.antialias)
    moved = timeouts.Sign()

    def decode() -> NDArray[np.generic]:
        if not len(times):
            region = catalogue.overrides.region_of(row)
            image = decoding.whole_image(
                path, background=settings.background, max_pixels=settings.max_pixels, region=region
            )
            return each(image)[None]
        shown: NDArray[np.generic] = clip_files.decoder().frames(path, times, each=each, moved=moved)
        return shown

    with _still_readable(catalogue, row, settings):
        frames = timeouts.run_with_timeout(settings.decode_timeout, f"{catalogue.key(row)!r} ({path})", decode, moved)
    return torch.from_numpy(frames).transpose(0, 1)


def is_broken(catalogue: Catalogue, row: int, settings: DataSettings) -> bool:
    """Whether an image that was not decoded when it was indexed is corrupt. The result is the same everywhere, as long
    as the file is unchanged."""
    try:
        with _still_readable(catalogue, row, settings):
            path = catalogue.local_path(row, keep_gb=settings.cache.fetched_gb)
            decoding.whole_image(path, background=settings.background, max_pixels=settings.max_pixels)
    except DatasetError as error:
        return error.code == BROKEN
    return False


@contextmanager
def _still_readable(catalogue: Catalogue, row: int, settings: DataSettings) -> Iterator[None]:
    try:
        yield
    except (DatasetError, OSError) as error:
        if isinstance(error, DatasetError) and error.code == "E1233":
            raise  # the file may be valid: a timeout must not silently exclude it
        path = catalogue.path(row)
        reason = error.message if isinstance(error, DatasetError) else f"{path}: {error.strerror or error}"
        if settings.verify == "on_first_use" and catalogue.verify(row):
            raise DatasetError(
                f"sample {catalogue.key(row)!r} is corrupt, and was not decoded before: {reason}; repair or remove "
                "the file, set data.verify=on_start, which skips such files, or data.on_corrupt=zero_weight, which "
                "trains it with weight 0",
                code=BROKEN,
            ) from error
        raise DatasetError(
            f"sample {catalogue.key(row)!r} could be read when the data set was indexed, but not now: {reason}; "
            "restore the file, or start again, which skips and reports it",
            code="E1250",
        ) from error
