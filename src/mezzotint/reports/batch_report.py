"""How images fill batches and buckets: a table per name and bucket, and the list of images that are small for their
bucket.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mezzotint import durable
from mezzotint.data.buckets import buckets
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.catalogue.data_report import readable
from mezzotint.data.schedule.balance import Fill, fills
from mezzotint.data.schedule.columns import plan_columns
from mezzotint.settings.sections.data import DataSettings

UNDERSIZED = "undersized_images.txt"
HEAD = ("name", "bucket", "images", "over", "to add", "filled up")


def rows_of(catalogue: Catalogue, rows: NDArray[np.int32], settings: DataSettings) -> list[tuple[str, ...]]:
    """The rows of the table with the columns `HEAD`, one for each name and bucket: images, images that do not fill a
    batch, how many images to add, and visits repeated to fill the last batch."""
    return [_row(catalogue, fill) for fill in fills(plan_columns(catalogue, rows, settings), settings)]


def _row(catalogue: Catalogue, fill: Fill) -> tuple[str, ...]:
    name = readable(catalogue.overrides.group_name(fill.group)) or "-"
    images = f"{fill.images:,}" + (f" + {fill.joined:,}" if fill.joined else "")
    cells = [f"{number:,}" if number else "-" for number in (fill.over, fill.missing, fill.filled)]
    return name, str(fill.bucket), images, *cells


def find_undersized(catalogue: Catalogue, rows: NDArray[np.int32], settings: DataSettings) -> NDArray[np.int32]:
    """The rows whose images are small for their bucket (`buckets.is_undersized`)."""
    placed = catalogue.buckets_of(rows, settings)
    width, height = catalogue.width[rows][placed.sample], catalogue.height[rows][placed.sample]
    small = buckets.is_undersized(width, height, placed.bucket, buckets.table(settings))
    return rows[np.unique(placed.sample[small])]


def write_undersized(
    catalogue: Catalogue, rows: NDArray[np.int32], settings: DataSettings, folder: Path
) -> Path | None:  # fmt: skip
    """Writes `undersized_images.txt` into an existing folder: path, size and bucket of each image that is small for its
    bucket. Returns None and writes nothing if there is no such image. Raises StorageError."""
    small = find_undersized(catalogue, rows, settings)
    if not len(small):
        return None
    path = folder / UNDERSIZED
    with durable.replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(_undersized_lines(catalogue, small, settings))
    return path


def _undersized_lines(catalogue: Catalogue, rows: NDArray[np.int32], settings: DataSettings) -> Iterator[str]:
    sizes: Sequence[object] = buckets.table(settings)
    placed = catalogue.buckets_of(rows, settings)
    for row, number in zip(rows[placed.sample].tolist(), placed.bucket.tolist(), strict=True):
        size = f"{catalogue.width[row]}×{catalogue.height[row]}"
        yield f"{readable(os.fspath(catalogue.path(row)))}, {size}, bucket {sizes[number]}\n"
