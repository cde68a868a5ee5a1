"""Moves runs to the trash and back. The trash is the folder `trash/` in the folder of the page that contains the run;
`runs/fox` becomes `trash/runs/fox`. Runs are only renamed: nothing is copied or removed, and no link is followed.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from mezzotint import durable
from mezzotint.board.reading.root_folders import TRASH, RootFolders, find_nested_run, is_run
from mezzotint.errors import CheckpointError
from mezzotint.run_folder import RunFolder
from mezzotint.tasks.holders import holder
from mezzotint.tasks.queue.entries import Queue

_REASONS = {
    "starting": "was started and runs; stop it first",
    "running": "is running; stop it first",
    "waiting": "waits for a lock; stop it first",
    "elsewhere": "is used by another machine, which its file lock names; stop it there, or remove that file",
}


def place_in_trash(path: Path, roots: RootFolders) -> Path:
    """Where the trash keeps a run. Raises CheckpointError E1958 for a run that is itself a folder of the page."""
    root = roots.root_of(path)
    if path == root:
        raise CheckpointError(
            f"{path}: is the folder that the page was opened with; open the folder that contains it", code="E1958"
        )
    return root / TRASH / path.relative_to(root)


def place_outside(path: Path, roots: RootFolders) -> Path:
    """Where a run in the trash is restored to. Raises CheckpointError E1958 for a run that is not in the trash."""
    root = roots.root_of(path)
    if not roots.is_trashed(path):
        raise CheckpointError(f"{path}: is not in {root / TRASH}", code="E1958")
    return root / path.relative_to(root / TRASH)


def refuse_move(path: Path, state: str, roots: RootFolders, queue: Queue) -> None:
    """Raises CheckpointError E1958 for a run that cannot be moved to the trash: it is not at rest, an entry of the
    queue trains it, another run is in its folder, or it is there already. state: of the run."""
    place_in_trash(path, roots)
    if roots.is_trashed(path):
        raise CheckpointError(f"{path}: is in the trash already", code="E1958")
    if state in _REASONS or holder(path).who != "nobody":
        raise CheckpointError(f"{path}: {_REASONS.get(state, 'its process is about to end; try again')}", code="E1958")
    entries = [entry for entry in queue.entries() if entry.run is not None and entry.run.is_relative_to(path)]
    entry = next((entry for entry in entries if entry.state in ("waiting", "running", "paused")), None)
    if entry is not None:
        raise CheckpointError(
            f"{path}: the entry {entry.name} of the queue is {entry.state} and trains it; remove it from the queue "
            "first",
            code="E1958",
        )
    inner = find_nested_run(path)
    if inner is not None:
        raise CheckpointError(f"{path}: contains another run, {inner}; move that one first", code="E1958")
    if is_run(roots.root_of(path) / TRASH):
        raise CheckpointError(f"{roots.root_of(path) / TRASH}: is a run, and the trash needs this name", code="E1958")


def move_to_trash(path: Path, roots: RootFolders) -> Path:
    """Moves a run to the trash, after `refuse_move`; returns its new place, whose name ends with a number if it is
    taken. Raises CheckpointError E1504 for a run that a process holds, E1958."""
    target = durable.free_folder(place_in_trash(path, roots))
    _rename(path, target)
    return target


def restore(path: Path, roots: RootFolders) -> Path:
    """Moves a run back to where it was; returns the place. Raises CheckpointError E1504 for a run that a process holds,
    E1958 if it is not in the trash, or something is in its place."""
    target = place_outside(path, roots)
    if os.path.lexists(target):
        raise CheckpointError(
            f"{target}: exists; restore the run under another name with `{move_command(path, target)}-restored`",
            code="E1958",
        )
    _rename(path, target)
    trash = roots.root_of(path) / TRASH
    durable.drop_empty([folder for folder in path.parents if folder.is_relative_to(trash)])
    return target


def move_command(path: Path, target: Path) -> str:
    """The command that moves a run."""
    return shlex.join(["mv", str(path), str(target)])


def _rename(path: Path, target: Path) -> None:
    """Renames a run's folder while its lock is held, so that no process starts in it."""
    if os.path.realpath(target.parent) != str(target.parent):
        raise CheckpointError(
            f"{target.parent}: is a link, or in a folder that is one, and nothing is moved through links; remove it",
            code="E1958",
        )
    created: list[Path] = []
    with RunFolder(path).lock():
        try:
            created = durable.make_folders(target.parent)
            os.rename(path, target)
            for folder in (path.parent, target.parent):
                durable.sync_folder(folder)
        except OSError as error:
            durable.drop_empty(created)
            raise CheckpointError(
                f"{path}: cannot be moved to {target} ({os.strerror(error.errno or 0)}); nothing was changed",
                code="E1958",
            ) from error
