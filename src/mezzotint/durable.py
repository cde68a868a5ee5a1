"""Crash-safe writing, which leaves either the old or the new content: write to a temporary name, sync, rename, sync the
folder."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from mezzotint import outside
from mezzotint.errors import CheckpointError, RecipeError, StorageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of the operating system: no space, quota exceeded, file too large."""

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FAILED = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOTCONN, errno.ENXIO, errno.ENODEV)


def sync_file(path: Path) -> None:
    """Makes a file's content durable, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


sync_folder = sync_file
"""Makes the names in a folder durable."""


def make_folders(path: Path) -> list[Path]:
    """Creates a folder and its missing parents, durably. Returns the created ones, inner ones first. Raises OSError."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        with suppress(PermissionError):  # a folder can be writable and not readable
            sync_folder(folder.parent)
    return missing


def drop_empty(folders: Iterable[Path]) -> None:
    """Removes the empty folders among these, inner ones first; others stay."""
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        with suppress(OSError):
            folder.rmdir()


def sync(path: Path) -> None:
    """Makes a file, or a folder with everything in it, durable."""
    for inner in path.rglob("*") if path.is_dir() else ():
        sync_file(inner)
    sync_file(path)


_ASIDE = re.compile(r"\.(?P<name>.+?)(\.removed|\.scratch)?\.(?P<pid>\d+)-(?P<host>[0-9a-f]{8})\.partial", re.DOTALL)


def temporary_path(path: Path, suffix: str = "") -> Path:
    """The hidden temporary name next to `path` for this process: `.NAME.PID-HOST.partial`, the only pattern of
    temporary files and folders. suffix: distinguishes several for one name, `removed` or `scratch`."""
    ending = f"{'.' if suffix else ''}{suffix}.{os.getpid()}-{_host()}.partial"
    return path.with_name(f".{_shorten(path.name, len(ending))}{ending}")


def _shorten(name: str, ending: int) -> str:
    if len(os.fsencode(name)) + ending > 254:  # file systems allow 255 bytes
        return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    return name


def _host() -> str:
    return f"{zlib.crc32(os.uname().nodename.encode()):08x}"


def sweep(folder: Path, name: str | None = None) -> list[str]:
    """Removes temporary files of dead processes of this machine (`temporary_path`) from a folder; returns their names.
    name: only those of this file. Files of other machines stay, which may still write them."""
    removed: list[str] = []
    try:
        entries = [entry.name for entry in os.scandir(folder) if entry.name.endswith(".partial")]
    except OSError:
        return removed
    for entry in sorted(entries):
        match = _ASIDE.fullmatch(entry)
        if match is None or match["host"] != _host() or _is_alive(int(match["pid"])):
            continue
        ending = len(os.fsencode(entry)) - len(os.fsencode(match["name"])) - 1
        if name is not None and _shorten(name, ending) != match["name"]:
            continue
        with suppress(OSError):
            _remove(folder / entry)
            removed.append(entry)
    return removed


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # another user's
        return True
    return True


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """A temporary folder next to `path` for the duration of the block; what a killed process has left of it is removed
    first. Raises OSError."""
    sweep(path.parent, path.name)
    folder = temporary_path(path, "scratch")
    _remove(folder)
    folder.mkdir(0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replace_atomically(path: Path, *, durably: bool = True) -> Iterator[Path]:
    """A temporary name next to `path`, in an existing folder, for writing a file or a folder. At the end it replaces
    `path`, complete and synced; when the block fails, it is removed and `path` stays as it was.

    durably: whether it must survive a power cut. Raises OSError.
    """
    aside = temporary_path(path)
    _remove(aside)
    try:
        yield aside
        move_into_place(aside, path, durably=durably)
    except BaseException:
        with suppress(OSError):
            _remove(aside)
        raise


def move_into_place(aside: Path, path: Path, *, durably: bool = True) -> None:
    """Renames a temporary file or folder to `path`, replacing what is there. Raises OSError."""
    if durably:
        sync(aside)
    replaces = aside.is_dir() and os.path.lexists(path)
    before = _swap(aside, path) if replaces else None
    if not replaces:
        os.replace(aside, path)
    if durably:
        sync_folder(path.parent)
    if before is not None:  # only after the sync: a power cut could restore its old name
        with suppress(OSError):
            _remove(before)


def _swap(aside: Path, path: Path) -> Path:
    """Renames a folder to an existing name; the replaced one gets the returned hidden name. Atomic if the file system
    supports an exchange; otherwise the old folder gets its name back when the second rename fails."""
    try:
        exchange_names(aside, path)
        return aside
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    before = temporary_path(path, "removed")
    os.replace(path, before)
    try:
        os.replace(aside, path)
    except BaseException:
        os.replace(before, path)
        raise
    return before


_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV)


def exchange_names(one: Path, other: Path) -> None:
    """Exchanges two names atomically (Linux). Raises OSError, with `_UNSUPPORTED` numbers if that is not possible."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    at_cwd, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename(at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), exchange):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(one))


@contextmanager
def replacing(path: Path, *, needed: int | None = None, durably: bool = True) -> Iterator[Path]:
    """`replace_atomically` that raises StorageError. needed: bytes."""
    with storage_errors(path, needed=needed), replace_atomically(path, durably=durably) as aside:
        yield aside


def free_folder(folder: Path) -> Path:
    """The folder, or the first of FOLDER-2, FOLDER-3 … that does not exist."""
    names = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return next(name for name in itertools.chain([folder], names) if not os.path.lexists(name))


def set_aside(path: Path) -> Path:
    """Renames one of our files or folders to the first free name `set-aside-N-NAME` next to it, durably; returns it."""
    names = (path.with_name(f"set-aside-{number}-{path.name}") for number in itertools.count(1))
    target = next(name for name in names if not name.exists())
    os.rename(path, target)
    sync_folder(path.parent)
    return target


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_file(path: Path, content: bytes | str) -> None:
    """Writes a small file atomically: its name always has complete content. Raises StorageError."""
    data = content.encode() if isinstance(content, str) else content
    with replacing(path, needed=len(data)) as aside:
        aside.write_bytes(data)


def write_json(path: Path, value: Any) -> None:
    """`write_file` of `json_text`."""
    write_file(path, json_text(value))


def json_text(value: Any) -> str:
    """Indented JSON with sorted keys, the form of our files."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write_new(
    path: Path, content: bytes | str, *, code: str = "E1014", remedy: str = "give another name", replaces: bool = False
) -> None:
    """`write_file` to a path given by a user, which does not overwrite anything unless `replaces`, and then replaces a
    file or a link, never the target of the link. Raises RecipeError with the given code if something exists there, also
    if it was created meanwhile; StorageError."""
    data = content.encode() if isinstance(content, str) else content
    if replaces and not path.is_dir():
        write_file(path, data)
        return
    aside = temporary_path(path)
    refuse_taken(path, code=code, remedy=remedy)
    with storage_errors(path, needed=len(data)):
        try:
            with open(aside, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _name_new(aside, path, data)
        except FileExistsError as error:
            raise _exists_error(path, code, remedy) from error
        finally:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
        sync_folder(path.parent)


def refuse_taken(path: Path, *, code: str = "E1014", remedy: str = "give another name", replaces: bool = False) -> None:
    """Raises RecipeError with the given code if anything exists at `path`, a dangling link included. replaces: files
    and links are allowed."""
    if os.path.lexists(path) and not (replaces and not path.is_dir()):
        raise _exists_error(path, code, remedy)


def _exists_error(path: Path, code: str, remedy: str) -> RecipeError:
    return RecipeError(f"{path}: already exists and was not changed; {remedy}, or add --replace", code=code)


def _name_new(aside: Path, path: Path, data: bytes) -> None:
    """Renames a file to a name that does not exist yet. Raises FileExistsError."""
    try:
        os.link(aside, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def open_own(path: Path, mode: str, *, buffering: int = -1) -> IO[bytes]:
    """Opens a file of a run for appending ("ab", "ab+"): a regular file, created if it does not exist.

    Raises CheckpointError E1160 for a link, a pipe, a folder: a run folder from somebody else may contain them, and
    their targets do not belong to the run. Otherwise OSError.
    """
    flags = {"ab": os.O_WRONLY, "ab+": os.O_RDWR}[mode]
    try:
        handle = os.open(path, flags | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        raise _not_regular_error(path) from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _not_regular_error(path)
        return open(handle, mode, buffering)
    except BaseException:
        os.close(handle)
        raise


def read_own_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file of a run, one per line; lines torn by a crash are skipped. Empty if there is no file.
    Raises CheckpointError E1160 if it is not a regular file, and OSError."""
    try:
        return outside.read_lines(path, within=path.parent)
    except outside.NotRegularFile as error:
        raise _not_regular_error(path, str(error.strerror).removeprefix("it is ")) from error
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _not_regular_error(path) from error


def _not_regular_error(path: Path, kind: str = "not a regular file") -> CheckpointError:
    kind = "a link" if path.is_symlink() else kind
    return CheckpointError(
        f"{path}: is {kind}, and a run writes only to its own regular files; remove it, or choose another run.name",
        code="E1160",
    )


def append_line(path: Path, value: Any) -> None:
    """Appends one JSON line and syncs it. A torn last line, left by a crash, is terminated first. Raises StorageError,
    and as `open_own`."""
    with storage_errors(path), open_own(path, "ab+") as file:
        is_new = not file.tell()
        if not is_new and not _ends_with_newline(file):
            file.write(b"\n")
        file.write((json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n").encode())
        file.flush()
        os.fsync(file.fileno())
        if is_new:
            sync_folder(path.parent)


def _ends_with_newline(file: Any) -> bool:
    file.seek(-1, os.SEEK_END)
    return bool(file.read(1) == b"\n")


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_tree(folder: Path) -> None:
    """Removes a folder of ours: it is first renamed to a hidden name, so that no reader finds half of it, not even
    after a power cut."""
    aside = temporary_path(folder, "removed")
    try:
        os.replace(folder, aside)
    except FileNotFoundError:
        return
    with suppress(OSError):
        sync_folder(folder.parent)
    shutil.rmtree(aside, ignore_errors=True)


def free_bytes(folder: Path) -> int:
    """Bytes that can still be written in the file system of `folder`, which may not exist yet."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


@contextmanager
def storage_errors(path: Path, needed: int | None = None) -> Iterator[None]:
    """Converts the operating system's storage errors to a StorageError with the path, the needed and the free bytes."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            size = f", {needed:,} bytes are needed" if needed else ""
            code, problem = "E1701", f"the disk is full{size}, {free_bytes(path.parent):,} are free; make room or"
        elif error.errno in _REFUSED:
            code, problem = "E1702", f"may not be written ({os.strerror(error.errno)}); change its permissions or"
        elif error.errno in (errno.EEXIST, errno.ENOTDIR):
            code, problem = "E1703", f"{error.filename or path} is a file, and a folder is needed; move it away, or"
        elif error.errno == errno.ENOENT and not path.parent.exists():
            code, problem = "E1520", f"{path.parent} does not exist any more; restore it, or"
        elif error.errno in _FAILED:
            code, problem = "E1700", f"the disk failed ({os.strerror(error.errno)}); check the disk, or"
        else:
            raise
        raise StorageError(f"{path}: {problem} choose another run.folder", code=code) from error
