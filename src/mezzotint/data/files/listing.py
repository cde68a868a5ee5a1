"""Lists the files below a folder: the first step of reading a data set, before any file is opened.

Only regular files count. Links are followed only inside the root; loops are detected. The order depends only on names,
not on the file system.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import warnings
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.assets import DATA
from mezzotint.errors import DatasetError, find_closest

_MANY = 100_000
"""Number of files listed by one process; the rest is divided among one process per processor, because the time is spent
in a system call for each file."""
_MAX_PROCESSES = 8

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_remote(path: Path | str) -> bool:
    """Whether a path is a URL of object storage, such as `s3://bucket/shards` (`remote.py`), not of a local disk."""
    return _ADDRESS.match(os.fspath(path)) is not None


class Unusable(Exception):
    """Raised with the reason why a file or a sample cannot be used."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The files below a root. names: paths relative to the root, with slashes, sorted by their bytes; a name that is
    not UTF-8 contains lone surrogates. stats: (n, 3) int64: size in bytes, times of modification and change in
    nanoseconds. refused: (path, reason) of entries that look like data but are not regular files inside the root.
    unknown: number of other files by extension."""

    root: Path
    names: list[str]
    stats: NDArray[np.int64]
    refused: tuple[tuple[str, str], ...]
    unknown: dict[str, int]

    @classmethod
    def of_files(cls, root: Path, names: Sequence[str], refused: Iterable[tuple[str, str]] = ()) -> Listing:
        """The listing of files given by name, in that order. Raises OSError for a missing one."""
        stats = [os.stat(root / name) for name in names]
        numbers = [(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats]
        return cls(root, list(names), np.array(numbers, np.int64).reshape(-1, 3), tuple(sorted(refused)), {})

    def digest(self) -> bytes:
        """32 bytes that change with any name, size or time."""
        state = hashlib.sha256()
        state.update("\0".join(self.names).encode("utf-8", "surrogateescape"))
        state.update(b"\0\0")
        state.update(self.stats.tobytes())
        state.update(repr((self.refused, sorted(self.unknown.items()))).encode("utf-8", "surrogatepass"))
        return state.digest()


def walk(root: Path, suffixes: Collection[str]) -> Listing:
    """Lists the files below `root` whose extension, in lower case, is in `suffixes`. Skips names that start with a dot,
    and everything below them. Raises DatasetError E1201 if the root is not a readable folder."""
    try:
        real = root.expanduser().resolve(strict=True)
        if not real.is_dir():
            raise DatasetError(f"{root}: is a file; set data.path to the folder that contains the images", code="E1201")
        os.scandir(real).close()
    except (OSError, RuntimeError) as error:
        reason = "does not exist" if isinstance(error, FileNotFoundError) else getattr(error, "strerror", str(error))
        searched = "" if root.is_absolute() else f" (searched next to the recipe and in {Path.cwd()})"
        shipped = os.listdir(DATA) if len(root.parts) == 1 else []
        near = find_closest(root.name, [*shipped, *_sibling_folders(root)])
        remedy = f"did you mean {root.parent / near}?" if near else "set data.path to the folder of images"
        if "," in root.name:
            remedy = f"for several folders set data.path=[{root}]"
        raise DatasetError(f"{root}: {reason}{searched}; {remedy}", code="E1201") from error
    walker = _Walker(os.fspath(real), frozenset(suffixes))
    walker.run()
    # for UTF-8 names the order of code points is that of bytes
    by = walker.names.__getitem__ if _is_utf8(walker.names) else lambda i: os.fsencode(walker.names[i])
    order = sorted(range(len(walker.names)), key=by)
    stats = np.frombuffer(walker.stats, dtype=np.int64).reshape(-1, 3)[order]
    names = [walker.names[i] for i in order]
    return Listing(real, names, stats, tuple(sorted(walker.refused)), dict(walker.unknown))


def _sibling_folders(root: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(root.expanduser().parent) if entry.is_dir()]
    except (OSError, RuntimeError):
        return []


@dataclass(slots=True)
class _Walker:
    root: str
    suffixes: frozenset[str]
    names: list[str] = field(default_factory=list)
    stats: array[int] = field(default_factory=lambda: array("q"))
    refused: list[tuple[str, str]] = field(default_factory=list)
    unknown: Counter[str] = field(default_factory=Counter)
    _open: list[tuple[str, str, bool]] = field(default_factory=list)

    def run(self) -> None:
        self._open.append((self.root, "", False))
        self._scan(_MANY)
        count = min(len(os.sched_getaffinity(0)), _MAX_PROCESSES, len(self._open))
        parts = [self._open[number::count] for number in range(count)]
        answers = [_scan_in_fork(replace(self, names=[], stats=array("q"), refused=[], unknown=Counter(), _open=part))
                   for part in parts[1:]]  # fmt: skip
        for number, part in enumerate(parts):
            answer = answers[number - 1]() if number else None
            if answer is None:  # the part of this process, or of one that failed
                self._open = part
                self._scan()
            else:
                names, stats, refused, unknown = answer
                self.names += names
                self.stats += stats
                self.refused += refused
                self.unknown += unknown

    def _scan(self, at_most: float = math.inf) -> None:
        """Scans the open folders and their subfolders. at_most: number of files after which it stops."""
        while self._open and len(self.names) < at_most:
            folder, prefix, through_link = self._open.pop()
            try:
                # relative to the open folder, which avoids resolving each path from the root
                handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    with os.scandir(handle) as entries:
                        self._scan_entries(entries, folder, prefix, through_link)
                finally:
                    os.close(handle)
            except OSError as error:
                self.refused.append((prefix.rstrip("/"), f"folder cannot be read: {error.strerror}"))

    def _scan_entries(self, entries: Iterable[os.DirEntry[str]], folder: str, prefix: str, through_link: bool) -> None:
        names, stats, is_listed = self.names, self.stats, _ExtensionCache(self.suffixes)
        for entry in sorted(entries, key=_name):  # presorted names make the final sort faster
            entry_name = entry.name
            if entry_name[0] == ".":
                continue
            name = prefix + entry_name
            try:
                if entry.is_file(follow_symlinks=False):
                    if is_listed[entry_name.rpartition(".")[2]] and "." in entry_name:
                        stat_result = entry.stat(follow_symlinks=False)
                        names.append(name)
                        stats.extend((stat_result.st_size, stat_result.st_mtime_ns, stat_result.st_ctime_ns))
                    else:
                        self.unknown[_suffix(entry_name)] += 1
                elif entry.is_symlink():
                    self._follow_link(f"{folder}/{entry_name}", name, through_link)
                elif entry.is_dir(follow_symlinks=False):
                    self._enter(f"{folder}/{entry_name}", name, through_link)
                else:
                    self._take(name, entry.stat(follow_symlinks=False))
            except OSError as error:
                self.refused.append((name, error.strerror or str(error)))

    def _follow_link(self, path: str, name: str, through_link: bool) -> None:
        try:
            real = os.path.realpath(path, strict=True)
        except OSError:
            self.refused.append((name, "a broken or circular link"))
            return
        stat_result = os.stat(real)
        if f"{path}/".startswith(real + os.sep):
            self.refused.append((name, "a circular link to one of its parent folders"))
        elif not real.startswith(self.root + os.sep):
            self.refused.append((name, "a link to a path outside the data set's folder"))
        elif not stat.S_ISDIR(stat_result.st_mode):
            self._take(name, stat_result)
        elif through_link:
            self.refused.append((name, "a link to a folder that is already listed"))
        else:
            self._enter(real, name, True)

    def _enter(self, path: str, name: str, through_link: bool) -> None:
        if _suffix(name) in self.suffixes:
            self.refused.append((name, "a folder, not a file"))
        else:
            self._open.append((path, name + "/", through_link))

    def _take(self, name: str, stat_result: os.stat_result) -> None:
        if _suffix(name) not in self.suffixes:
            self.unknown[_suffix(name)] += 1
        elif stat.S_ISREG(stat_result.st_mode):
            self.names.append(name)
            self.stats.extend((stat_result.st_size, stat_result.st_mtime_ns, stat_result.st_ctime_ns))
        else:
            self.refused.append((name, "not a regular file"))


def _scan_in_fork(walker: _Walker) -> Callable[[], Any]:
    """Scans a walker's folders in a forked process. Returns a function that waits for it and returns its names, stats,
    refused and unknown files; None if it failed. The child makes only system calls and uses no lock that a thread of
    this process may hold."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, from Python 3.12 on
        child = os.fork()
    if not child:
        try:
            os.close(reading)
            walker._scan()
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(json.dumps([walker.names, walker.refused, walker.unknown]).encode("ascii") + b"\n")
                pipe.write(walker.stats.tobytes())
        finally:
            os._exit(0)
    os.close(writing)

    def answer() -> Any:
        with os.fdopen(reading, "rb") as pipe:
            data = pipe.read()
        os.waitpid(child, 0)
        try:
            texts, _, stats = data.partition(b"\n")
            names, refused, unknown = json.loads(texts)
            return names, array("q", stats), list(map(tuple, refused)), unknown
        except ValueError:
            return None

    return answer


_name = attrgetter("name")


def _is_utf8(names: Sequence[str]) -> bool:
    try:
        "".join(names).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class _ExtensionCache(dict[str, bool]):
    """Whether files with an extension, in its original case and without dot, are listed; each is checked once."""

    def __init__(self, suffixes: Collection[str]) -> None:
        super().__init__()
        self._suffixes = suffixes

    def __missing__(self, ending: str) -> bool:
        self[ending] = is_listed = f".{ending.lower()}" in self._suffixes
        return is_listed


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def select(listing: Listing, selection: list[bool]) -> Listing:
    """A listing of some of its files. selection: whether each is one of them."""
    names = [name for name, is_selected in zip(listing.names, selection, strict=True) if is_selected]
    return replace(listing, names=names, stats=listing.stats[np.array(selection, dtype=np.bool_)])


def without_folders(listing: Listing, folders: Iterable[Path]) -> Listing:
    """A listing without the files in some folders below its root."""
    resolved = (folder.expanduser().resolve() for folder in folders)
    inside = tuple(
        f"{path.relative_to(listing.root).as_posix()}/"
        for path in resolved
        if path.is_relative_to(listing.root) and path != listing.root
    )
    return select(listing, [not name.startswith(inside) for name in listing.names]) if inside else listing
