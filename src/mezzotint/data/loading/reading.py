"""The pixels of a sample, as its file has them when it is visited: what a catalogue has placed becomes bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint.data.media import clip_files, clip_transforms, decoding
from mezzotint.data.schedule.clip_visits import Instants
from mezzotint.errors import DatasetError
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Placement

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue


def read_picture(catalogue: Catalogue, row: int, placed: Placement, settings: DataSettings) -> NDArray[np.uint8]:
    """The placed picture of a row, (3, H, W). Raises DatasetError naming file and sample, E1250 when it cannot be read
    any more, E1831 when it has not been decoded before (`data.verify`) and is damaged."""
    with _still_readable(catalogue, row, settings):
        return decoding.picture(
            catalogue.path(row),
            placed,
            resize=settings.resize,
            antialias=settings.antialias,
            background=settings.background,
            max_pixels=settings.max_pixels,
        )


def read_frames(catalogue: Catalogue, row: int, placed: Placement, times: Instants, settings: DataSettings) -> Tensor:
    """The placed frames of a row at some instants, uint8 (3, F, H, W); (3, 1, H, W) of a picture, which has none.
    Raises as `read_picture`."""
    path = catalogue.path(row)
    each = clip_transforms.placer(placed, resize=settings.resize, antialias=settings.antialias)
    with _still_readable(catalogue, row, settings):
        if len(times):
            frames = clip_files.decoder().frames(path, times, each=each)
        else:
            frames = each(decoding.whole(path, background=settings.background, max_pixels=settings.max_pixels))[None]
    return torch.from_numpy(frames).transpose(0, 1)


@contextmanager
def _still_readable(catalogue: Catalogue, row: int, settings: DataSettings) -> Iterator[None]:
    try:
        yield
    except (DatasetError, OSError) as error:
        path = catalogue.path(row)
        reason = error.message if isinstance(error, DatasetError) else f"{path}: {error.strerror or error}"
        if settings.verify == "use" and catalogue.verify(row):
            raise DatasetError(
                f"sample {catalogue.key(row)!r} is damaged, which its header did not show: {reason}; mend or remove "
                "the file, or set data.verify=start, which leaves such files out",
                code="E1831",
            ) from error
        raise DatasetError(
            f"sample {catalogue.key(row)!r} could be read when the data set was indexed and cannot be now: {reason}; "
            "restore the file, or start again, which leaves it out and says so",
            code="E1250",
        ) from error
