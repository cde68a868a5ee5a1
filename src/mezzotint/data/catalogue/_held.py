"""Holds an index that a process reads, so that no other removes it: a shared lock on its manifest."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from mezzotint import durable

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


def remove_unless_held(folder: Path) -> None:
    """Removes an index that no process holds."""
    handle = os.open(folder / _MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            durable.remove_tree(folder)  # in the lock: none can begin to hold it
    finally:
        os.close(handle)
