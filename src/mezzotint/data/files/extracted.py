"""Images extracted from other files, stored as separate files next to the index, named by their content.

They are then handled like any other image: probed once, read by every worker by path, checked by digest. They use the
disk space of the images a second time; deleting them costs only time.
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


class Images:
    """A folder of images by content. Stored images survive a power loss after `sync`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._new: list[Path] = []

    def put(self, data: bytes) -> Path:
        """Stores the bytes of an image file, once, and returns the path. Raises StorageError E1720."""
        name = hashlib.sha256(data).hexdigest()
        path = self.folder / name[:2] / name
        if _has_content(path, data):
            return path
        with columns.convert_write_errors(self.folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            with durable.replace_atomically(path, durably=False) as temporary:
                temporary.write_bytes(data)
        self._new.append(path)
        return path

    def sync(self) -> None:
        """Syncs all stored images to disk before an index refers to them. Raises StorageError E1720."""
        with columns.convert_write_errors(self.folder):
            for path in self._new:
                durable.sync_file(path)
            for folder in sorted({path.parent for path in self._new}):
                durable.sync_folder(folder)
            if self._new:
                durable.sync_folder(self.folder)
        self._new.clear()


def is_as_put(path: Path, stats: NDArray[np.int64]) -> bool:
    """Whether a file has the size and times in an index (bytes, modification and change in nanoseconds)."""
    try:
        stat = os.stat(path)
    except OSError:
        return False
    return (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) == tuple(stats.tolist())


def sweep(folder: Path, used_names: Collection[str]) -> None:
    """Removes images whose names (their SHA-256) are not in `used_names`, and partial files left by a crash."""
    for path in folder.glob("*/*"):
        if path.name not in used_names:
            path.unlink(missing_ok=True)


def _has_content(path: Path, data: bytes) -> bool:
    try:
        # read the content: after a power loss a file may have another content than was written
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except OSError:
        return False
