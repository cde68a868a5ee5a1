"""Run folders that carry the time of their start: `logs/fox-{stamp}` is `logs/fox-20260731-142210`, then another."""

from __future__ import annotations

import re
import time
from pathlib import Path

from mezzotint.errors import CheckpointError

STAMP = "{stamp}"
_FORM = r"\d{8}-\d{6}"


def is_open(path: Path) -> bool:
    """Whether a path still stands for many: its last part holds the stamp."""
    return STAMP in path.name


def starred(path: Path) -> str:
    """A path for messages, with a star for the stamp."""
    return str(path).replace(STAMP, "*")


def settled(folder: Path, resume: str) -> Path:
    """The folder of this start: a new one, or, for `resume` auto and latest, the newest that has a checkpoint.

    Raises CheckpointError E1507 for latest where none has.
    """
    if not is_open(folder):
        return folder
    run = newest(folder) if resume in ("auto", "latest") else None
    if run is None and resume == "latest":
        raise nothing_to_go_on_with(folder)
    return run or folder.with_name(folder.name.replace(STAMP, time.strftime("%Y%m%d-%H%M%S")))


def newest(folder: Path) -> Path | None:
    """The newest run of an open name that has a checkpoint, by its stamp and never by a file's time; None without
    one."""
    runs = [path for path in stamped(folder) if any(path.glob("checkpoints/step-*/manifest.json"))]
    return runs[-1] if runs else None


def stamped(folder: Path) -> list[Path]:
    """All run folders of an open name, the oldest first."""
    pattern = re.compile(_FORM.join(re.escape(piece) for piece in folder.name.split(STAMP)))
    beside = folder.parent.iterdir() if folder.parent.is_dir() else ()
    return sorted(path for path in beside if path.is_dir() and pattern.fullmatch(path.name))


def nothing_to_go_on_with(folder: Path) -> CheckpointError:
    """What is said where no run of an open name can be gone on with."""
    there = stamped(folder)
    listed = ", ".join(path.name for path in there[-3:])
    seen = f"those that are there ({listed}) have none" if there else "none is there"
    return CheckpointError(
        f"{starred(folder)}: no run of this name has a checkpoint to go on from, {seen}; start a new run, or name a "
        "folder",
        code="E1507",
    )
