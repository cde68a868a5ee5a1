"""Run folders with the time of their start in the name: `logs/fox-{stamp}` becomes `logs/fox-20260731-142210`."""

from __future__ import annotations

import re
import time
from pathlib import Path

from mezzotint.errors import CheckpointError

STAMP = "{stamp}"
_FORM = r"\d{8}-\d{6}"


def is_open(path: Path) -> bool:
    """Whether the last part of a path contains the stamp."""
    return STAMP in path.name


def with_star(path: Path) -> str:
    """A path for messages, with `*` for the stamp."""
    return str(path).replace(STAMP, "*")


def choose_folder(folder: Path, resume: str) -> Path:
    """The folder of this start: a new one, or, for `resume` auto and latest, the newest with a checkpoint.

    Raises CheckpointError E1507 for latest if none has one.
    """
    if not is_open(folder):
        return folder
    run = newest_run(folder) if resume in ("auto", "latest") else None
    if run is None and resume == "latest":
        raise no_run_to_resume(folder)
    return run or folder.with_name(folder.name.replace(STAMP, time.strftime("%Y%m%d-%H%M%S")))


def newest_run(folder: Path) -> Path | None:
    """The newest run of a stamped name with a checkpoint, by its stamp and never by a file's time; None without one."""
    runs = [path for path in list_runs(folder) if any(path.glob("checkpoints/step-*/manifest.json"))]
    return runs[-1] if runs else None


def list_runs(folder: Path) -> list[Path]:
    """All run folders of a stamped name, the oldest first."""
    pattern = re.compile(_FORM.join(re.escape(piece) for piece in folder.name.split(STAMP)))
    siblings = folder.parent.iterdir() if folder.parent.is_dir() else ()
    return sorted(path for path in siblings if path.is_dir() and pattern.fullmatch(path.name))


def no_run_to_resume(folder: Path) -> CheckpointError:
    """The error for a stamped name of which no run can be resumed."""
    existing = list_runs(folder)
    listed = ", ".join(path.name for path in existing[-3:])
    others = f"existing ones ({listed}) have none" if existing else "no such folder exists"
    return CheckpointError(
        f"{with_star(folder)}: no run of this name has a checkpoint to resume from, {others}; start a new run, "
        "or name a "
        "folder",
        code="E1507",
    )
