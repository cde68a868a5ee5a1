"""The folder of a run: its layout, the lock against a second run, and the history of its starts.

    checkpoints/ exports/ samples/ logs/ recipe.yaml environment.json history.jsonl run.log metrics.jsonl
    bad_steps.jsonl origin.json requests/ lock notes.json (of the page)

Files of others are never touched: only names that this module creates are pruned or swept.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import shlex
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from mezzotint import durable, outside
from mezzotint.errors import CheckpointError, RecipeError, StorageError

_NO_FOLDER = (errno.ENOTDIR, errno.EEXIST, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL)


RUN_SCHEMA, OLDER_RUN_SCHEMAS = 4, (1, 2)
"""Versions of a run folder's manifest.json: the current one, and older ones that are not supported any more."""

CHECKPOINT_SCHEMA, OLDER_CHECKPOINT_SCHEMAS = 7, (1, 2, 4)
"""The same for a checkpoint's manifest.json. No older version differs from the current one by a single flipped bit."""

LAST_READER = "9540f57e1fb3"
"""The last commit that reads run folders and checkpoints of older versions."""


def refuse_older_run(run: Path) -> None:
    """Raises CheckpointError E1521 for a run folder that an older version wrote, or whose newest checkpoint it wrote.
    Files that cannot be read are left to their reader."""
    _refuse_older(run, "run folder", RUN_SCHEMA, OLDER_RUN_SCHEMAS)
    checkpoints = sorted((run / "checkpoints").glob("step-*"), key=lambda path: (len(path.name), path.name))
    if checkpoints:
        refuse_older_checkpoint(checkpoints[-1])


def refuse_older_checkpoint(checkpoint: Path) -> None:
    """Raises CheckpointError E1521 for a checkpoint that an older version wrote."""
    _refuse_older(checkpoint, "checkpoint", CHECKPOINT_SCHEMA, OLDER_CHECKPOINT_SCHEMAS)


def _refuse_older(path: Path, kind: str, current: int, older: tuple[int, ...]) -> None:
    try:
        schema = outside.read_json(path / "manifest.json", limit=outside.LISTED)["schema"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if schema in older:
        raise CheckpointError(
            f"{path}: an older version wrote this {kind} (format {schema}, this version reads {current}); continue it "
            f"with commit {LAST_READER}, the last that reads it, or start a new run",
            code="E1521",
        )


class RunFolder:
    """A run folder on disk. `open()` creates it; `lock()` is held while a run writes to it.

    linked_folders: folders elsewhere that its folders may be links to, as allowed by the user.
    """

    def __init__(self, path: Path, linked_folders: Sequence[Path] = ()) -> None:
        self.path = path.absolute()
        self.linked_folders = tuple(linked_folders)
        self.checkpoints = self.path / "checkpoints"
        self.exports = self.path / "exports"
        self.samples = self.path / "samples"
        self.logs = self.path / "logs"
        self.history = self.path / "history.jsonl"
        self.metrics = self.path / "metrics.jsonl"
        self.bad_steps = self.path / "bad_steps.jsonl"
        self.log = self.path / "run.log"
        self.recipe = self.path / "recipe.yaml"
        self.origin = self.path / "origin.json"
        self.requests = self.path / "requests"
        self._folders = (self.path, self.checkpoints, self.exports, self.samples, self.logs)
        self._lock: Lock | None = None
        self._new: list[Path] = []
        self._is_used = False

    def open(self) -> Self:
        """Creates the folder and checks that it can be written. Raises StorageError E1702 or E1703, RecipeError E1007
        for a path that is not UTF-8 text."""
        try:
            str(self.path).encode()
        except UnicodeEncodeError as error:
            raise RecipeError(
                f"run.folder: {self.path} is not UTF-8 text, which checkpoints and reports require; choose "
                "another run.folder",
                code="E1007",
            ) from error
        if os.path.exists(self.path) and not os.path.isdir(self.path):  # pathlib's methods raise for too long names
            raise StorageError(
                f"{self.path}: is a file, not a folder; choose another run.folder or run.name", code="E1703"
            )
        try:
            with durable.storage_errors(self.path):
                for folder in self._folders:
                    self._new += _make_folders(folder)
                probe = durable.temporary_path(self.path / "probe")
                durable.write_file(probe, b"can this folder be written?")
                probe.unlink()
        except BaseException:
            durable.drop_empty(self._new)
            raise
        return self

    def refuse_links(self) -> None:
        """Raises CheckpointError E1160 if one of the run's folders, or a folder in one of them, is a link that leads
        out of the run folder to a place that is not in `linked_folders`. Call it before anything is read or written
        there: the run folder may come from somebody else."""
        folders = (*self._folders[1:], self.requests, self.path / "cache")
        for path in (*folders, *(link for folder in folders for link in _linked_folders_in(folder))):
            if path.is_symlink() and all(outside.leads_out(path, top) for top in (self.path, *self.linked_folders)):
                target = os.path.realpath(path)
                setting = shlex.quote(f"run.linked_folders={json.dumps([target], ensure_ascii=False)}")
                raise CheckpointError(
                    f"{path}: is a link to {target}, outside of the run folder; remove the link, or allow it on the "
                    f"command line with {setting}",
                    code="E1160",
                )

    def discard_if_unused(self) -> None:
        """Removes what `open` has created, parents included, if nothing has happened yet: a refused start leaves no
        trace. Only while the lock is held, so that the removed file is our own. A folder that has replaced ours
        stays."""
        if self.describe_loss():
            return
        (self.path / "lock").unlink(missing_ok=True)
        if self._is_used:
            return
        if self.log.exists() and not self.history.exists():
            self.log.unlink()
        durable.drop_empty(self._new)

    def lock(self) -> Lock:
        """Locks the folder for this process. Raises CheckpointError E1504 with the holder."""
        self._lock = Lock(self.path / "lock")
        return self._lock

    def describe_loss(self) -> str:
        """Why the folder that this process holds cannot be written any more: it is gone, was replaced by another one,
        or became read-only. "" if it can. Two system calls, for every step."""
        if self._lock is not None and not self._lock.has_name():
            return f"{self.path}: disappeared or was replaced by another folder while the run was writing to it"
        if self._lock is not None and not os.access(self.path, os.W_OK):
            return f"{self.path}: cannot be written any more; its disk or its permissions have changed"
        return ""

    def record(self, event: str, **facts: Any) -> None:
        """Appends a line to the history: the event, the time, and the given facts."""
        self._is_used = True
        durable.append_line(self.history, {"event": event, "time": _now(), **facts})

    def events(self) -> list[dict[str, Any]]:
        """The history, oldest first. Raises as `durable.read_own_lines`."""
        return durable.read_own_lines(self.history)

    def attempts(self) -> int:
        """How often a run was started here."""
        return sum(event.get("event") == "started" for event in self.events())

    def sweep(self) -> list[str]:
        """Removes half-written files of a killed process, only those with our hidden names; returns their names."""
        removed = []
        for folder in self._folders:
            for path in folder.glob(".*"):
                if path.name.startswith((".partial-", ".removing-", ".probe-")) or path.name.endswith(".partial"):
                    is_folder = path.is_dir() and not path.is_symlink()
                    shutil.rmtree(path, ignore_errors=True) if is_folder else path.unlink(missing_ok=True)
                    removed.append(path.name)
        return sorted(removed)


class Lock:
    """An exclusive lock on a run folder, held as long as the process lives: a dead holder's lock is free at once.

    The file names its holder for people; the operating system's lock on it counts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = self._acquire()
        while not self.has_name():  # the last holder has just removed the file, so ours locks nothing
            self._file.close()
            self._file = self._acquire()
        self._file.truncate(0)
        self._file.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}))
        self._file.flush()
        os.register_at_fork(after_in_child=self._file.close)  # else a worker keeps the lock after its run is killed

    def _acquire(self) -> TextIO:
        path = self._path
        with durable.storage_errors(path):
            self._file = io.TextIOWrapper(durable.open_own(path, "ab+"), "utf-8", "replace", write_through=True)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            holder = _holder(self._file.read(4096))
            self._file.close()
            raise CheckpointError(
                f"{path.parent}: {holder} is writing here; wait for it, stop it, or choose another run.name",
                code="E1504",
            ) from error
        return self._file

    def has_name(self) -> bool:
        """Whether the locked file still has its name."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.lstat(self._path))
        except OSError:
            return False

    def fileno(self) -> int:
        """The descriptor of the lock: a process that inherits it holds the lock, too."""
        return self._file.fileno()

    def release(self) -> None:
        """Releases the folder at the end of a run; the end of the process does so, too."""
        if not self._file.closed:
            self._file.truncate(0)
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _linked_folders_in(folder: Path) -> list[Path]:
    """Links to folders, or dangling links, among the entries of a folder. A link to a file is replaced, never
    followed."""
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_symlink() and not os.path.isfile(entry.path)]
    except OSError:
        return []


def _make_folders(folder: Path) -> list[Path]:
    """Creates a folder and its missing parents; returns the created ones. Raises StorageError E1703 where no folder can
    be created: below a file, in a system folder, with a name that is too long."""
    try:
        return durable.make_folders(folder)
    except OSError as error:
        if error.errno not in _NO_FOLDER:
            raise
        raise StorageError(
            f"{folder}: no folder can be created there ({os.strerror(error.errno)}); "
            "choose another run.folder or run.name",
            code="E1703",
        ) from error


def _holder(text: str) -> str:
    try:
        who = outside.parse_json(text)
        return f"process {who['pid']} on {who['host']} (since {who['since']})"
    except (ValueError, KeyError, TypeError):
        return "another run"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
