"""The batches of an epoch as a text file, a line a visit, in the form of EveryDream2's `ep0_batch_schedule.txt`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mezzotint import durable
from mezzotint.data.buckets import buckets
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import Epoch


def lines(epoch: Epoch, rows: NDArray[np.int32], catalogue: Catalogue, settings: DataSettings) -> Iterator[str]:
    """`step:00000, wh:[512, 512], r:0, path:/full/path` for each visit, in order.

    step: the batch of the epoch, from 0. wh: width and height of its bucket. r: how many of its pictures are no
    repetitions, where a batch had to be filled up (`data.remainder=repeat`), else 0. rows: of the catalogue, which
    `epoch.order` counts.
    """
    sizes = buckets.table(settings)
    for batch in range(epoch.num_batches):
        visits = slice(int(epoch.starts[batch]), int(epoch.starts[batch + 1]))
        size = sizes[int(epoch.bucket[batch])]
        start = f"step:{batch:05}, wh:[{size.width}, {size.height}], r:{_own(epoch, visits, settings)}, path:"
        for row in rows[epoch.order[visits]].tolist():
            yield f"{start}{_printed(catalogue.path(row))}\n"


def write(
    epoch: Epoch, rows: NDArray[np.int32], catalogue: Catalogue, settings: DataSettings, folder: Path
) -> Path:  # fmt: skip
    """Writes `ep{N}_batch_schedule.txt` into a folder that is there, N the epoch from 0, whole or not at all. UTF-8.
    Raises StorageError."""
    path = folder / f"ep{epoch.epoch}_batch_schedule.txt"
    with durable.replacing(path) as aside, open(aside, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines(epoch, rows, catalogue, settings))
    return path


def bytes_of(epoch: Epoch, rows: NDArray[np.int32], catalogue: Catalogue, settings: DataSettings) -> int:
    """About how large the file of an epoch is, told from its first thousand lines."""
    lengths = [
        len(line.encode()) for line, _ in zip(lines(epoch, rows, catalogue, settings), range(1000), strict=False)
    ]
    return round(sum(lengths) / max(1, len(lengths)) * len(epoch.order))


def _own(epoch: Epoch, visits: slice, settings: DataSettings) -> int:
    factor, num = float(epoch.factor[visits.start]), visits.stop - visits.start
    return round(num * factor ** (1 / settings.remainder_power)) if settings.remainder == "repeat" and factor < 1 else 0


def _printed(path: Path) -> str:
    # a name that is no UTF-8 keeps its line
    return os.fsencode(path).decode("utf-8", "backslashreplace").replace("\n", "\\n").replace("\r", "\\r")
