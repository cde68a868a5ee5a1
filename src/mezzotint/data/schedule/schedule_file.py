"""The batches of an epoch as a text file, a line per visit, in the format of EveryDream2's `ep0_batch_schedule.txt`."""

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

    step: the batch of the epoch, from 0. wh: width and height of its bucket. r: number of its images that are not
    repetitions if the batch was filled up (`data.remainder=repeat`), otherwise 0. rows: of the catalogue, indexed by
    `epoch.order`.
    """
    sizes = buckets.table(settings)
    for batch in range(epoch.num_batches):
        visits = slice(int(epoch.starts[batch]), int(epoch.starts[batch + 1]))
        size = sizes[int(epoch.bucket[batch])]
        start = f"step:{batch:05}, wh:[{size.width}, {size.height}], r:{_num_real(epoch, visits, settings)}, path:"
        for row in rows[epoch.order[visits]].tolist():
            yield f"{start}{_printable(catalogue.path(row))}\n"


def write(
    epoch: Epoch, rows: NDArray[np.int32], catalogue: Catalogue, settings: DataSettings, folder: Path
) -> Path:  # fmt: skip
    """Writes `ep{N}_batch_schedule.txt` into an existing folder, atomically, in UTF-8. N is the epoch, from 0. Raises
    StorageError."""
    path = folder / f"ep{epoch.epoch}_batch_schedule.txt"
    with durable.replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines(epoch, rows, catalogue, settings))
    return path


def bytes_of(epoch: Epoch, rows: NDArray[np.int32], catalogue: Catalogue, settings: DataSettings) -> int:
    """Approximate size of the file of an epoch, estimated from its first thousand lines."""
    lengths = [
        len(line.encode()) for line, _ in zip(lines(epoch, rows, catalogue, settings), range(1000), strict=False)
    ]
    return round(sum(lengths) / max(1, len(lengths)) * len(epoch.order))


def _num_real(epoch: Epoch, visits: slice, settings: DataSettings) -> int:
    factor, num = float(epoch.factor[visits.start]), visits.stop - visits.start
    return round(num * factor ** (1 / settings.remainder_power)) if settings.remainder == "repeat" and factor < 1 else 0


def _printable(path: Path) -> str:
    # bytes that are not UTF-8 are escaped
    return os.fsencode(path).decode("utf-8", "backslashreplace").replace("\n", "\\n").replace("\r", "\\r")
