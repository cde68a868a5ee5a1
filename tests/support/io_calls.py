"""The system calls that write files, one by one: a test lets each fail in turn, or records them for `power_loss`."""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from mezzotint import durable


@dataclass(frozen=True)
class Call:
    """One call. name: as `os` has it, `exchange` for the one of `durable`. path: what it was about, and `other` where
    it came to lie. at, data: of a write; at is also the size of a truncation."""

    name: str
    path: str
    other: str = ""
    at: int = 0
    data: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Failure:
    """What goes wrong at the call of the number `at`, counted from 0. half: it is done, or a write half done, and fails
    all the same. short: a write that is told to be half done and does not fail, as the system may do at any time.
    lasts: every later call fails as well."""

    number: int = errno.EIO
    at: int = 0
    half: bool = False
    short: bool = False
    lasts: bool = False


@dataclass
class Calls:
    """The calls below a folder so far, and the one that fails."""

    root: Path
    failure: Failure | None = None
    calls: list[Call] = field(default_factory=list)

    def made(self, call: Call, act: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """Counts a call, and does it or fails. half: does half of it; None where that is all of it."""
        number, failure = len(self.calls), self.failure
        self.calls.append(call)
        if failure is None or number < failure.at or (number > failure.at and not failure.lasts):
            try:
                return act()
            except OSError:  # a folder that is there, a file that is not
                self.calls[number] = replace(call, name=f"{call.name} in vain")
                raise
        if failure.short and number == failure.at:
            return (half or act)()
        if failure.half:
            (half or act)()
        raise OSError(failure.number, os.strerror(failure.number), call.path)

    def is_below(self, path: Any) -> bool:
        """Whether a path is one of those that count."""
        return isinstance(path, (str, bytes, os.PathLike)) and Path(os.path.abspath(os.fsdecode(path))).is_relative_to(
            self.root
        )


_PLAIN_OPEN = io.open


def path_of(handle: int) -> str:
    """The path of an open file, where it lies by now."""
    return os.readlink(f"/proc/self/fd/{handle}")


@contextmanager
def watched(root: Path, failure: Failure | None = None) -> Iterator[Calls]:
    """Within, the calls below a folder are counted, and one of them fails."""
    calls = Calls(Path(os.path.realpath(root)), failure)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("mkdir", "rmdir", "unlink", "remove", "replace", "rename", "link", "symlink"):
            patch.setattr(os, name, _on_paths(calls, name))
        for name in ("fsync", "fdatasync", "ftruncate", "write", "pwrite"):
            patch.setattr(os, name, _on_handles(calls, name))
        patch.setattr(os, "open", _open(calls))
        patch.setattr(durable, "exchange_names", _on_paths(calls, "exchange", durable.exchange_names))
        patch.setattr(builtins, "open", _file(calls))
        patch.setattr(io, "open", _file(calls))
        patch.setattr(shutil, "_USE_CP_SENDFILE", False, raising=False)  # copies are written as all else is
        yield calls


def _on_paths(calls: Calls, name: str, plain: Callable[..., Any] | None = None) -> Callable[..., Any]:
    plain = plain or getattr(os, name)
    kept = "unlink" if name == "remove" else "replace" if name == "rename" else name

    def call(path: Any, *others: Any, **options: Any) -> Any:
        folder = options.get("dir_fd") or options.get("src_dir_fd")
        place = os.path.join(path_of(folder), os.fsdecode(path)) if folder is not None else path
        has_other = name in ("replace", "rename", "link", "symlink", "exchange")
        where = others[0] if has_other else ""
        if not calls.is_below(where if name == "symlink" else place):
            return plain(path, *others, **options)
        first = os.fsdecode(place) if name == "symlink" else os.path.abspath(os.fsdecode(place))
        call = Call(kept, first, os.path.abspath(os.fsdecode(where)) if where else "")
        return calls.made(call, lambda: plain(path, *others, **options))

    return call


def _on_handles(calls: Calls, name: str) -> Callable[..., Any]:
    plain = getattr(os, name)

    def call(handle: int, *others: Any) -> Any:
        path = path_of(handle)
        if not calls.is_below(path):
            return plain(handle, *others)
        if name in ("write", "pwrite"):
            data = bytes(others[0])
            at = others[1] if name == "pwrite" else _place(handle)
            half = lambda: plain(handle, data[: max(len(data) // 2, 1)], *others[1:])  # noqa: E731
            return calls.made(Call("write", path, at=at, data=data), lambda: plain(handle, *others), half)
        at = others[0] if name == "ftruncate" else 0
        call = Call("fsync" if name == "fdatasync" else name, path, at=at)
        does = (lambda: None) if call.name == "fsync" else (lambda: plain(handle, *others))  # no power goes here
        return calls.made(call, does)

    return call


def _place(handle: int) -> int:
    """Where the next write goes."""
    appends = fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_APPEND
    return os.fstat(handle).st_size if appends else os.lseek(handle, 0, os.SEEK_CUR)


def _open(calls: Calls) -> Callable[..., int]:
    plain = os.open

    def call(path: Any, flags: int, *others: Any, **options: Any) -> int:
        writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        if not writes or not calls.is_below(path):
            return plain(path, flags, *others, **options)
        name = "create" if flags & os.O_CREAT else "open"
        call = Call(name, os.path.abspath(os.fsdecode(path)), at=0 if flags & os.O_TRUNC else -1)
        return int(calls.made(call, lambda: plain(path, flags, *others, **options)))

    return call


class _Raw(io.FileIO):
    """An open file whose writes count."""

    def __init__(self, calls: Calls, file: Any, mode: str, **options: Any) -> None:
        self._calls = calls
        if isinstance(file, int):
            super().__init__(file, mode, **options)
        else:
            path = os.path.abspath(os.fsdecode(file))
            call = Call("open" if mode.startswith("r") else "create", path, at=0 if mode.startswith("w") else -1)
            calls.made(call, lambda: super(_Raw, self).__init__(file, mode, **options))

    def write(self, data: Any) -> int:
        content = bytes(data)
        plain = super().write
        call = Call("write", path_of(self.fileno()), at=_place(self.fileno()), data=content)
        return int(self._calls.made(call, lambda: plain(content), lambda: plain(content[: max(len(content) // 2, 1)])))

    def truncate(self, size: int | None = None) -> int:
        length = self.tell() if size is None else size
        plain = super().truncate
        return int(self._calls.made(Call("ftruncate", path_of(self.fileno()), at=length), lambda: plain(length)))


def _file(calls: Calls) -> Callable[..., Any]:
    def call(
        file: Any, mode: str = "r", buffering: int = -1, encoding: str | None = None, errors: str | None = None,
        newline: str | None = None, closefd: bool = True, opener: Any = None,
    ) -> Any:  # fmt: skip
        writes = bool(set(mode) & set("wax+"))
        path = path_of(file) if isinstance(file, int) and writes else file
        if not writes or not calls.is_below(path):
            return _PLAIN_OPEN(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = _Raw(calls, file, mode.replace("b", "").replace("t", ""), closefd=closefd)
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding or "utf-8", errors, newline)

    return call
