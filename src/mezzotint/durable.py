"""Writing so that a power cut leaves either the old or the new: write aside, sync, rename, sync the folder."""

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
"""The operating system's numbers for: no space, quota used up, file too large."""

_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)
_FAILED = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOTCONN, errno.ENXIO, errno.ENODEV)


def sync_file(path: Path) -> None:
    """Makes a file's content durable, or the names inside of a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


sync_folder = sync_file
"""Makes the names inside of a folder durable."""


def make_folders(path: Path) -> list[Path]:
    """Makes a folder and those above it, as far as they are not there, durably. Returns those that were not, the inner
    ones first. Raises the system's own errors."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        with suppress(PermissionError):  # who may make folders somewhere may still not read there
            sync_folder(folder.parent)
    return missing


def drop_empty(folders: Iterable[Path]) -> None:
    """Removes those of some folders in which nothing lies, the inner ones first; the others stay."""
    for folder in sorted(folders, key=lambda one: len(one.parts), reverse=True):
        with suppress(OSError):
            folder.rmdir()


def sync(path: Path) -> None:
    """Makes a file, or a folder with all that is in it, durable."""
    for inner in path.rglob("*") if path.is_dir() else ():
        sync_file(inner)
    sync_file(path)


_ASIDE = re.compile(r"\.(?P<name>.+?)(\.removed|\.scratch)?\.(?P<pid>\d+)-(?P<host>[0-9a-f]{8})\.partial", re.DOTALL)


def aside_of(path: Path, what: str = "") -> Path:
    """The hidden name beside `path` under which this process writes: `.NAME.PID-HOST.partial`, the one rule for all
    that is temporary and may be left behind. what: tells things of one name apart, `removed` or `scratch`."""
    ending = f"{'.' if what else ''}{what}.{os.getpid()}-{_host()}.partial"
    return path.with_name(f".{_shortened(path.name, len(ending))}{ending}")


def _shortened(name: str, ending: int) -> str:
    if len(os.fsencode(name)) + ending > 254:  # file systems take 255 bytes
        return hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    return name


def _host() -> str:
    return f"{zlib.crc32(os.uname().nodename.encode()):08x}"


def sweep(folder: Path, name: str | None = None) -> list[str]:
    """Removes what processes of this machine that are dead have left of `aside_of` in a folder; returns the names.
    name: of one file alone. What another machine may still write stays."""
    gone: list[str] = []
    try:
        entries = [entry.name for entry in os.scandir(folder) if entry.name.endswith(".partial")]
    except OSError:
        return gone
    for entry in sorted(entries):
        mark = _ASIDE.fullmatch(entry)
        if mark is None or mark["host"] != _host() or _is_alive(int(mark["pid"])):
            continue
        ending = len(os.fsencode(entry)) - len(os.fsencode(mark["name"])) - 1
        if name is not None and _shortened(name, ending) != mark["name"]:
            continue
        with suppress(OSError):
            _remove(folder / entry)
            gone.append(entry)
    return gone


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # another user's
        return True
    return True


@contextmanager
def scratch_beside(path: Path) -> Iterator[Path]:
    """A folder beside `path` for as long as the block lasts; what a killed process has left of `path` goes first.
    Raises the system's own errors."""
    sweep(path.parent, path.name)
    folder = aside_of(path, "scratch")
    _remove(folder)
    folder.mkdir(0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def swapped_in(path: Path, *, durably: bool = True) -> Iterator[Path]:
    """A name beside `path`, in a folder that is there, under which a file or a folder is written. At the end it takes
    the place of what lies at `path`, whole and synced; when the block fails it is removed, and what lay there stays.

    durably: whether it must survive a power cut. Raises the system's own errors.
    """
    aside = aside_of(path)
    _remove(aside)
    try:
        yield aside
        take_place(aside, path, durably=durably)
    except BaseException:
        with suppress(OSError):
            _remove(aside)
        raise


def take_place(aside: Path, path: Path, *, durably: bool = True) -> None:
    """Gives what is written beside `path` its name, in the place of what lies there. Raises the system's own errors."""
    if durably:
        sync(aside)
    replaces = aside.is_dir() and os.path.lexists(path)
    before = _swap(aside, path) if replaces else None
    if not replaces:
        os.replace(aside, path)
    if durably:
        sync_folder(path.parent)
    if before is not None:  # only now: a power cut may bring the name back that it had
        with suppress(OSError):
            _remove(before)


def _swap(aside: Path, path: Path) -> Path:
    """Gives a folder the name of what lies there, which goes by the hidden name that is returned. At no moment nothing
    has that name, where the file system can do that in one move; else it gets it back when the second move fails."""
    try:
        _exchange(aside, path)
        return aside
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
    before = aside_of(path, "removed")
    os.replace(path, before)
    try:
        os.replace(aside, path)
    except BaseException:
        os.replace(before, path)
        raise
    return before


_UNKNOWN = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EXDEV)


def _exchange(one: Path, other: Path) -> None:
    """Two names change places in one move (Linux). Raises OSError, of `_UNKNOWN` where that cannot be."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if rename(here, os.fsencode(one), here, os.fsencode(other), exchange):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(one))


@contextmanager
def replacing(path: Path, *, needed: int | None = None, durably: bool = True) -> Iterator[Path]:
    """`swapped_in` with the errors of storage. needed: bytes. Raises StorageError."""
    with storage_errors(path, needed=needed), swapped_in(path, durably=durably) as aside:
        yield aside


def free_folder(folder: Path) -> Path:
    """The folder, or the first of FOLDER-2, FOLDER-3 … that is not there."""
    names = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return next(name for name in itertools.chain([folder], names) if not os.path.lexists(name))


def set_aside(path: Path) -> Path:
    """Gives a file or folder of ours the first name `set-aside-N-NAME` that is free beside it, durably; returns it."""
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
    """Writes a small file so that its name always shows complete content. Raises StorageError."""
    data = content.encode() if isinstance(content, str) else content
    with replacing(path, needed=len(data)) as aside:
        aside.write_bytes(data)


def write_json(path: Path, value: Any) -> None:
    """`write_file` of `json_text`."""
    write_file(path, json_text(value))


def json_text(value: Any) -> str:
    """Indented JSON with sorted keys, as our files have it."""
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def write_new(
    path: Path, content: bytes | str, *, code: str = "E1014", remedy: str = "give another name", replaces: bool = False
) -> None:
    """`write_file` where a user says: what lies there stays, unless `replaces`, and then a file or a link goes, never
    what the link leads to. Raises RecipeError, of the code given, where something stays, also where it came meanwhile;
    StorageError."""
    data = content.encode() if isinstance(content, str) else content
    if replaces and not path.is_dir():
        write_file(path, data)
        return
    aside = aside_of(path)
    refuse_taken(path, code=code, remedy=remedy)
    with storage_errors(path, needed=len(data)):
        try:
            with open(aside, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            _name_new(aside, path, data)
        except FileExistsError as error:
            raise _taken(path, code, remedy) from error
        finally:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
        sync_folder(path.parent)


def refuse_taken(path: Path, *, code: str = "E1014", remedy: str = "give another name", replaces: bool = False) -> None:
    """Raises RecipeError, of the code given, where anything lies, a link that leads nowhere among it. replaces: files
    and links are in nobody's way."""
    if os.path.lexists(path) and not (replaces and not path.is_dir()):
        raise _taken(path, code, remedy)


def _taken(path: Path, code: str, remedy: str) -> RecipeError:
    return RecipeError(f"{path}: is there already and stays as it is; {remedy}, or add --replace", code=code)


def _name_new(aside: Path, path: Path, data: bytes) -> None:
    """Gives a file its name where nobody has it yet. Raises FileExistsError."""
    try:
        os.link(aside, path)
    except FileExistsError:
        raise
    except OSError:  # a file system that knows one name a file
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


def open_own(path: Path, mode: str, *, buffering: int = -1) -> IO[bytes]:
    """Opens a file that a run keeps for itself, to be appended to ("ab", "ab+"): a plain file, made where none is.

    Raises CheckpointError E1160 for a link, a pipe, a folder: a run folder of a stranger's may have them, and what they
    lead to is not the run's. Otherwise the system's own errors.
    """
    flags = {"ab": os.O_WRONLY, "ab+": os.O_RDWR}[mode]
    try:
        handle = os.open(path, flags | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        raise _not_ours(path) from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise _not_ours(path)
        return open(handle, mode, buffering)
    except BaseException:
        os.close(handle)
        raise


def read_own_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file that a run keeps for itself, one a line; lines that a crash has torn are left out.
    Empty when there is no file. Raises CheckpointError E1160 where no plain file lies there, and the system's errors.
    """
    try:
        return outside.read_lines(path, within=path.parent)
    except outside.NoPlainFile as error:
        raise _not_ours(path, str(error.strerror).removeprefix("it is ")) from error
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise _not_ours(path) from error


def _not_ours(path: Path, what: str = "no plain file") -> CheckpointError:
    what = "a link" if path.is_symlink() else what
    return CheckpointError(
        f"{path}: is {what}, and a run writes into files of its own alone; remove it, or choose another run.name",
        code="E1160",
    )


def append_line(path: Path, value: Any) -> None:
    """Appends one JSON line and syncs it. A torn last line, left by a crash, is ended first, so that it stays alone.
    Raises StorageError, and as `open_own`."""
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
    """Removes a folder of ours: first out of sight under a hidden name, so that no reader meets half of it, not even
    after a power cut."""
    aside = aside_of(folder, "removed")
    try:
        os.replace(folder, aside)
    except FileNotFoundError:
        return
    with suppress(OSError):
        sync_folder(folder.parent)
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
            size = f", {needed:,} bytes are needed" if needed else ""
            code, what = "E1701", f"the disk is full{size}, {free_bytes(path.parent):,} are free; make room or"
        elif error.errno in _REFUSED:
            code, what = "E1702", f"may not be written ({os.strerror(error.errno)}); change its rights or"
        elif error.errno in (errno.EEXIST, errno.ENOTDIR):
            code, what = "E1703", f"{error.filename or path} is a file where a folder must be; move it away, or"
        elif error.errno == errno.ENOENT and not path.parent.exists():
            code, what = "E1520", f"{path.parent} is not there any more; put it back, or"
        elif error.errno in _FAILED:
            code, what = "E1700", f"the disk failed ({os.strerror(error.errno)}); look after it, or"
        else:
            raise
        raise StorageError(f"{path}: {what} choose another run.folder", code=code) from error
