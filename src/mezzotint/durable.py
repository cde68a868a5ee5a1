"""Writing so that a power cut leaves either the old or the new: write aside, sync, rename, sync the folder."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mezzotint.errors import StorageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The operating system's numbers for: no space, quota used up, file too large."""

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FAILED = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOTCONN, errno.ENXIO, errno.ENODEV)


def sync_folder(folder: Path) -> None:
    """Makes the names inside a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> None:
    """Makes a file's content durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_file(path: Path, content: bytes | str) -> None:
    """Writes a small file so that its name always shows complete content. Raises StorageError."""
    data = content.encode() if isinstance(content, str) else content
    aside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with storage_errors(path, needed=len(data)):
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """`write_file` of indented JSON with sorted keys."""
    write_file(path, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def append_line(path: Path, value: Any) -> None:
    """Appends one JSON line and syncs it. A torn last line, left by a crash, is ended first, so that it stays alone."""
    with storage_errors(path), open(path, "ab+") as file:
        if file.tell() and not _ends_with_newline(file):
            file.write(b"\n")
        file.write((json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def _ends_with_newline(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file, one a line; lines that a crash has torn are left out. Empty when there is no file."""
    found: list[dict[str, Any]] = []
    if not path.exists():
        return found
    for line in path.read_text("utf-8", errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_tree(folder: Path) -> None:
    """Removes a folder of ours: first out of sight under a hidden name, so that no reader meets half of it."""
    aside = folder.with_name(f".removing-{folder.name}-{os.getpid()}")
    try:
        os.replace(folder, aside)
    except FileNotFoundError:
        return
    shutil.rmtree(aside, ignore_errors=True)


def free_bytes(folder: Path) -> int:
    """Bytes that can still be written where `folder` is, or will be."""
    here = folder
    while not here.exists():
        here = here.parent
    return shutil.disk_usage(here).free


@contextmanager
def storage_errors(path: Path, needed: int | None = None) -> Iterator[None]:
    """Turns the operating system's words about storage into a StorageError that names the place, what is needed and
    what is free."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            wanted = f", {needed:,} bytes are needed" if needed else ""
            raise StorageError(
                f"{path}: the disk is full{wanted}, {free_bytes(path.parent):,} are free; make "
                "room or choose another run.folder",
                code="E1701",
            ) from error
        if error.errno in _REFUSED:
            raise StorageError(
                f"{path}: may not be written ({os.strerror(error.errno)}); choose another "
                "run.folder or change its rights",
                code="E1702",
            ) from error
        if error.errno in _FAILED:
            raise StorageError(
                f"{path}: the disk failed ({os.strerror(error.errno)}); look after it, or choose another run.folder",
                code="E1700",
            ) from error
        raise
