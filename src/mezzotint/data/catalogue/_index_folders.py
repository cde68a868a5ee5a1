"""The index folders of a data set, side by side: one process makes one at a time, the newest are kept, and those that a
process reads."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from mezzotint import durable
from mezzotint.data.catalogue import indexing
from mezzotint.data.files import columns, extracted
from mezzotint.data.files.columns import DamagedColumns

_KEPT_INDEXES = 4
_MANIFEST = "manifest.json"


class HeldIndex:
    """Holds an index until it is collected; nothing without an index, or on a file system without locks."""

    def __init__(self, folder: Path) -> None:
        with suppress(OSError):
            self._handle = os.open(folder / _MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._handle, fcntl.LOCK_SH)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            os.close(self._handle)


def _remove_unless_held(folder: Path) -> None:
    """Removes an index that no process holds."""
    handle = os.open(folder / _MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            durable.remove_tree(folder)  # in the lock: none can begin to hold it
    finally:
        os.close(handle)


@contextmanager
def lock(parent: Path) -> Iterator[None]:
    """Holds the lock of all indexes of a data set: one process creates an index, the others wait and open it."""
    with columns.convert_write_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(parent / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        durable.sweep(parent)
        yield
    finally:
        os.close(handle)


def _indexes(parent: Path) -> list[Path]:
    """The indexes of a data set, newest first."""
    indexes = [entry.parent for entry in parent.glob("[0-9a-f]*/manifest.json")]
    return sorted(indexes, key=lambda index: (index / "manifest.json").stat().st_mtime_ns, reverse=True)


def newest_columns(parent: Path, verify: Literal["on_start", "on_first_use"]) -> dict[str, NDArray[Any]]:
    """The columns of the newest index that can be reused, or an empty dict. An index without decoding
    (`data.verify=on_first_use`) is not reused for one with decoding."""
    for index in _indexes(parent):
        try:
            table, about = columns.read(index)
        except (FileNotFoundError, DamagedColumns):
            continue
        is_sufficient = verify == "on_first_use" or about.get("verified", "on_start") == "on_start"
        if about.get("version") == indexing.VERSION and is_sufficient:
            return table
    return {}


def prune(parent: Path, current: Path) -> None:
    """Removes old indexes that no process holds, and extracted images that no index has."""
    for index in _indexes(parent)[_KEPT_INDEXES:]:
        if index != current:
            _remove_unless_held(index)
    _sweep(parent)


def _sweep(parent: Path) -> None:
    if not (parent / indexing.IMAGES).is_dir():
        return
    try:
        tables = [columns.read(index)[0] for index in _indexes(parent)]
        digests = [table[name] for table in tables for name in ("digest", "mask_digest") if name in table]
    except (FileNotFoundError, DamagedColumns):
        return  # its files are unknown; the next change sweeps
    extracted.sweep(parent / indexing.IMAGES, {row.tobytes().hex() for column in digests for row in column})
