"""The journal of changes to a data folder, in `.mezzotint/edits/` beside the data: each change is one transaction that
is finished after a kill, and can be undone and redone.

    000001.json …   one file for each transaction: for every changed file its hashes, and the bytes that differ
    state.json      how many transactions are applied, and the one that the files are being moved to
    lock            held during each operation

A transaction is written before `state.json` names it, and `state.json` before any file changes. Killed before that, it
never happened; killed after that, the next operation finishes it. A file that has neither the content before nor the
one after was changed by somebody else, and is left as it is.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mezzotint import durable, fault_injection, outside
from mezzotint.data.editing.caption_files import Contents, read_content, require_inside
from mezzotint.data.files.image_settings import FILE as SETTINGS_FILE
from mezzotint.data.files.masks import is_named_mask
from mezzotint.data.formats.shared.sidecars import SIDECARS
from mezzotint.data.formats.shared.table_files import is_manifest
from mezzotint.errors import DatasetError, StorageError
from mezzotint.settings.counting import format_names

FOLDER = Path(".mezzotint") / "edits"
"""The journal's folder, below the data folder. Hidden, so no listing of data finds it."""

_STATE = "state.json"
_VERSION = 1
_THREADS = 8


@dataclass(frozen=True, slots=True)
class RecordedEdit:
    """A change that was made. label: what it did. group: the same for changes of several folders that belong together.
    at: seconds since 1970. files: names of the changed files below the folder."""

    number: int
    label: str
    group: str
    at: float
    files: tuple[str, ...]


class Journal:
    """The journal of a data folder. root: the folder, resolved."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / FOLDER

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the journal's lock, and finishes what a killed process has begun. Raises DatasetError E1263 for a
        journal that is not valid, StorageError if the folder cannot be written."""
        for folder in (self.folder.parent, self.folder):
            if folder.is_symlink():
                raise DatasetError(
                    f"{folder}: is a link; remove it, so that changes can be recorded here", code="E1263"
                )
        with durable.storage_errors(self.folder):
            durable.make_folders(self.folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(self.folder / "lock", flags, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            self._finish()
            yield
        finally:
            os.close(handle)

    # --- in the lock ---

    def commit(self, label: str, contents: Contents, *, group: str = "") -> int:
        """Changes files as one transaction and returns its number. contents: of each file, before and after. What was
        undone before can then no longer be redone. Raises as `lock`."""
        number = self._state()[0] + 1
        files = [_difference(name, before, after) for name, (before, after) in sorted(contents.items())]
        for name, _ in contents.items():
            _require_editable(self.root, name)
        record = {"version": _VERSION, "label": label, "group": group, "time": time.time(), "files": files}
        durable.write_file(self._path(number), json.dumps(record, indent=1) + "\n")  # ASCII: holds lone surrogates
        fault_injection.reach("edit.recorded")
        self._move(number - 1, number, {name: after for name, (_, after) in contents.items()})
        for later in self._later(number):
            later.unlink(missing_ok=True)
        return number

    def undo(self) -> RecordedEdit | None:
        """Undoes the last transaction that is applied; None if there is none. Raises DatasetError E1262 if a file was
        changed since, and as `lock`."""
        number, _ = self._state()
        return self._step(number, number - 1) if number else None

    def redo(self) -> RecordedEdit | None:
        """Applies the transaction that was undone last; None if there is none. Raises as `undo`."""
        number, _ = self._state()
        return self._step(number, number + 1) if self._path(number + 1).is_file() else None

    def _step(self, number: int, to: int) -> RecordedEdit:
        record = self._read(max(number, to))
        contents: dict[str, bytes | None] = {}
        changed = []
        for one in record["files"]:
            is_as_expected, after = _content_after(self.root, one, forward=to > number)
            contents[one["name"]] = after
            if not is_as_expected:
                changed.append(one["name"])
        if changed:
            raise DatasetError(
                f"{self.root}: {format_names(changed, 5)} changed since this edit, outside of the editor; "
                f"{'redoing' if to > number else 'undoing'} it would overwrite that. Edit the captions instead",
                code="E1262",
            )
        self._move(number, to, contents)
        return _edit_of(max(number, to), record)

    # --- without the lock ---

    def undoable(self) -> RecordedEdit | None:
        """The transaction that `undo` would undo."""
        return self._edit_at(self._state()[0])

    def redoable(self) -> RecordedEdit | None:
        """The transaction that `redo` would apply."""
        return self._edit_at(self._state()[0] + 1)

    def history(self, most: int = 12) -> list[tuple[RecordedEdit, bool]]:
        """The newest transactions, and whether each is applied, the newest first."""
        applied = self._state()[0]
        last = applied + len(list(self._later(applied)))
        numbers = range(last, max(0, last - most), -1)
        return [(edit, number <= applied) for number in numbers if (edit := self._edit_at(number)) is not None]

    def _edit_at(self, number: int) -> RecordedEdit | None:
        return _edit_of(number, self._record(number)) if number and self._path(number).is_file() else None

    def is_moving(self) -> bool:
        """Whether a process is changing files, or was killed while it did."""
        number, to = self._state()
        return number != to

    # --- files ---

    def _move(self, number: int, to: int, contents: Mapping[str, bytes | None]) -> None:
        durable.write_json(self.folder / _STATE, {"version": _VERSION, "applied": number, "moving_to": to})
        fault_injection.reach("edit.begin")
        write_all(self.root, contents)
        fault_injection.reach("edit.end")
        durable.write_json(self.folder / _STATE, {"version": _VERSION, "applied": to, "moving_to": to})

    def _finish(self) -> None:
        """Finishes the transaction that a killed process was applying or undoing."""
        durable.sweep(self.folder)
        number, to = self._state()
        if number == to:
            return
        files = self._read(max(number, to))["files"]
        for folder in {(self.root / one["name"]).parent for one in files}:
            durable.sweep(folder)
        pending = {}
        for one in files:
            is_as_expected, after = _content_after(self.root, one, forward=to > number)
            if is_as_expected:
                pending[one["name"]] = after
        self._move(number, to, pending)

    def _state(self) -> tuple[int, int]:
        """The number of applied transactions, and the number that they are being moved to."""
        path = self.folder / _STATE
        value = self._parse(path) or {"applied": 0, "moving_to": 0}
        applied, moving_to = value.get("applied"), value.get("moving_to")
        if type(applied) is not int or type(moving_to) is not int or applied < 0 or moving_to < 0:
            raise self._damaged(path)
        if abs(applied - moving_to) > 1:
            raise self._damaged(path)
        return applied, moving_to

    def _read(self, number: int) -> dict[str, Any]:
        """The record of a transaction that is going to be applied or undone."""
        value = self._record(number)
        for one in value["files"]:
            _require_editable(self.root, one["name"])
        return value

    def _record(self, number: int) -> dict[str, Any]:
        path = self._path(number)
        value = self._parse(path)
        if value is None or not _is_record(value):
            raise self._damaged(path)
        return value

    def _parse(self, path: Path) -> dict[str, Any] | None:
        """The object in a file of the journal; None if it does not exist."""
        try:
            value = outside.read_json(path, limit=outside.LISTED, within=self.root)
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            raise self._damaged(path) from None
        if not isinstance(value, dict) or value.get("version") != _VERSION:
            raise self._damaged(path)
        return value

    def _damaged(self, path: Path) -> DatasetError:
        return DatasetError(
            f"{path}: is not a valid journal of edits; move {self.folder} away, and with it what could be undone",
            code="E1263",
        )

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.json"

    def _later(self, number: int) -> Iterator[Path]:
        while (path := self._path(number := number + 1)).is_file():
            yield path


def settle(folder: Path) -> list[str]:
    """Finishes edits of a folder, and of those that it is in, that a killed process has begun, and waits for one that
    is being made; returns `marks`. Raises as `Journal.lock`, and DatasetError E1265 if one cannot be finished here."""
    for root in _edited_folders(folder):
        journal = Journal(root)
        if journal.is_moving():
            try:
                with journal.lock():
                    pass
            except StorageError as error:
                raise DatasetError(
                    f"{root}: an edit of its captions was interrupted, so some are changed and others are not; finish "
                    f"it by starting once where the folder can be written ({error.message})",
                    code="E1265",
                ) from error
    return marks(folder)


def marks(folder: Path) -> list[str]:
    """Texts of which one is another after each edit of a folder, or of one that it is in."""
    texts = []
    for root in _edited_folders(folder):
        with suppress(OSError):
            facts = os.stat(root / FOLDER / _STATE)
            texts.append(f"{root} {facts.st_ino} {facts.st_mtime_ns}")
    return texts


def _edited_folders(folder: Path) -> list[Path]:
    return [root for root in (folder, *folder.parents) if (root / FOLDER).is_dir()]


def write_all(root: Path, contents: Mapping[str, bytes | None]) -> None:
    """Gives files below a folder new content, each atomically; None removes one. All are on disk before the first gets
    its name. Raises StorageError, and DatasetError E1260."""
    paths = {require_inside(root, name): data for name, data in contents.items()}
    written = [(path, durable.temporary_path(path), data) for path, data in paths.items() if data is not None]
    try:
        with durable.storage_errors(root, needed=sum(len(data) for _, _, data in written)):
            with ThreadPoolExecutor(min(_THREADS, len(written) or 1)) as pool:
                list(pool.map(lambda one: _write_aside(*one), written))
            for path, aside, _ in written:
                durable.move_into_place(aside, path, durably=False)
                fault_injection.reach("edit.file")
            for path, data in paths.items():
                if data is None:
                    path.unlink(missing_ok=True)
            for folder in {path.parent for path in paths}:
                durable.sync_folder(folder)
    finally:
        for _, aside, _ in written:
            with suppress(OSError):
                aside.unlink(missing_ok=True)


def _write_aside(path: Path, aside: Path, data: bytes) -> None:
    aside.unlink(missing_ok=True)
    with open(aside, "xb") as file:
        with suppress(OSError):  # a new file has the usual mode
            os.fchmod(file.fileno(), stat.S_IMODE(os.stat(path).st_mode))
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _require_editable(root: Path, name: str) -> None:
    """Raises DatasetError E1260 for a file that edits never change: a journal may come from somebody else."""
    require_inside(root, name)
    last = name.rpartition("/")[2]
    if not (last.lower().endswith(SIDECARS) or is_manifest(name) or last == SETTINGS_FILE or is_named_mask(last)):
        raise DatasetError(
            f"{root / name}: is not a file of captions, settings or a mask; it was not changed", code="E1260"
        )


# --- records ----------------------------------------------------------------------------------------------------------


def _is_record(value: Mapping[str, Any]) -> bool:
    """Whether the values of a record have their types."""
    files = value.get("files")
    return (
        all(isinstance(value.get(name), str) for name in ("label", "group"))
        and isinstance(value.get("time"), int | float)
        and isinstance(files, list)
        and all(isinstance(one, dict) and _is_file_record(one) for one in files)
    )


def _is_file_record(one: Mapping[str, Any]) -> bool:
    hashes = [one.get("hash_before", 0), one.get("hash_after", 0)]
    return (
        all(isinstance(one.get(name), str) for name in ("name", "before", "after"))
        and all(value is None or isinstance(value, str) for value in hashes)
        and type(one.get("offset")) is int
        and one["offset"] >= 0
    )


def _difference(name: str, before: bytes | None, after: bytes | None) -> dict[str, Any]:
    """The record of a changed file: the bytes that differ, as text in which bytes that are not UTF-8 are lone
    surrogates, and where they are."""
    old, new = before or b"", after or b""
    offset = _count_equal(old, new)
    rest = _count_equal(old[offset:][::-1], new[offset:][::-1])
    parts = (data[offset : len(data) - rest].decode("utf-8", "surrogateescape") for data in (old, new))
    return {
        "name": name, "offset": offset, **dict(zip(("before", "after"), parts, strict=True)),
        "hash_before": _hash(before), "hash_after": _hash(after),
    }  # fmt: skip


def _count_equal(one: bytes, other: bytes) -> int:
    """How many bytes two texts have in common at their beginning."""
    length = min(len(one), len(other))
    differs = np.frombuffer(one, np.uint8, length) != np.frombuffer(other, np.uint8, length)
    return int(differs.argmax()) if differs.any() else length


def _content_after(root: Path, record: Mapping[str, Any], *, forward: bool) -> tuple[bool, bytes | None]:
    """Whether a file has the content that a step expects, and its content after the step."""
    source, target = ("before", "after") if forward else ("after", "before")
    data = read_content(root, record["name"])
    if _hash(data) != record[f"hash_{source}"]:
        return False, None
    if record[f"hash_{target}"] is None:
        return True, None
    old, new = (record[side].encode("utf-8", "surrogateescape") for side in (source, target))
    begin, content = record["offset"], data or b""
    result = content[:begin] + new + content[begin + len(old) :]
    return _hash(result) == record[f"hash_{target}"], result


def _hash(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


def _edit_of(number: int, record: Mapping[str, Any]) -> RecordedEdit:
    names = tuple(one["name"] for one in record["files"])
    return RecordedEdit(number, record["label"], record["group"], float(record["time"]), names)
