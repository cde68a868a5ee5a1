"""Where a verb puts what it makes, when nobody said where."""

from __future__ import annotations

from pathlib import Path


def free_folder(folder: Path) -> Path:
    """The folder, or the first of FOLDER-2, FOLDER-3 … that is not there."""
    number, free = 1, folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free
