"""Pictures that lie inside other files, put down as files of their own beside the index, named by their content.

From there on they are like any other picture: looked at once, read by every worker by its path, checked by its digest.
They cost the disk space of the pictures once more; deleting them costs only time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mezzotint import durable
from mezzotint.data.files import columns


class Pictures:
    """A folder of pictures by content. What was put is safe from a power cut after `sync`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._new: list[Path] = []

    def put(self, data: bytes) -> Path:
        """Keeps the bytes of a picture file, once, and returns where they lie. Raises StorageError E1720."""
        name = hashlib.sha256(data).hexdigest()
        path = self.folder / name[:2] / name
        if _holds(path, data):
            return path
        with columns.written(self.folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            with durable.swapped_in(path, durably=False) as aside:
                aside.write_bytes(data)
        self._new.append(path)
        return path

    def sync(self) -> None:
        """Makes all that was put durable: all together, since an index that names them follows. Raises StorageError
        E1720."""
        with columns.written(self.folder):
            for path in self._new:
                durable.sync_file(path)
            for folder in sorted({path.parent for path in self._new}):
                durable.sync_folder(folder)
            if self._new:
                durable.sync_folder(self.folder)
        self._new.clear()


def is_as_put(path: Path, stats: NDArray[np.int64]) -> bool:
    """Whether a file has the size and times that an index has noted (bytes, modification and change in nanoseconds)."""
    try:
        stat = os.stat(path)
    except OSError:
        return False
    return (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) == tuple(stats.tolist())


def sweep(folder: Path, kept: Collection[str]) -> None:
    """Removes pictures whose names (their SHA-256) are not among `kept`, and halves that a crash left."""
    for path in folder.glob("*/*"):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def _holds(path: Path, data: bytes) -> bool:
    try:
        # read, not trusted: after a power cut a name may show other content than was put
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False
