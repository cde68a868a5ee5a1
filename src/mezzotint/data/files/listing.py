"""Which files lie below a folder: the first look at a data set, before anything is opened.

Only regular files count. Links are followed inside the root and nowhere else; loops end. The order depends on names
alone, not on the file system.
"""

from __future__ import annotations

import hashlib
import os
import stat
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mezzotint.errors import DatasetError


class Unusable(Exception):
    """Why a file, or a sample, cannot be used."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What was found below a root. names: paths relative to the root, with slashes, sorted by their bytes; a name that
    is not UTF-8 carries lone surrogates. stats: (n, 3) int64: size in bytes, times of modification and change in
    nanoseconds. refused: (path, reason) of what looks like data and is no regular file inside the root. unknown: how
    many other files there are, by ending."""

    root: Path
    names: list[str]
    stats: NDArray[np.int64]
    refused: tuple[tuple[str, str], ...]
    unknown: dict[str, int]

    @classmethod
    def of_files(cls, root: Path, names: Sequence[str], refused: Iterable[tuple[str, str]] = ()) -> Listing:
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
    """Lists the files below `root` whose ending, in lower case, is in `suffixes`. Names that begin with a dot are left
    out, with what lies below them. Raises DatasetError E1201 when the root is not a folder that can be read."""
    try:
        real = root.expanduser().resolve(strict=True)
        if not real.is_dir():
            raise DatasetError(f"{root}: is a file; data.path names the folder that the pictures lie in", code="E1201")
        os.scandir(real).close()
    except (OSError, RuntimeError) as error:
        reason = "does not exist" if isinstance(error, FileNotFoundError) else getattr(error, "strerror", str(error))
        looked = "" if root.is_absolute() else f" (looked beside the recipe and in {Path.cwd()})"
        remedy = "data.path names the folder of pictures"
        if "," in root.name:
            remedy = f"several folders are data.path=[{root}]"
        raise DatasetError(f"{root}: {reason}{looked}; {remedy}", code="E1201") from error
    walker = _Walker(os.fspath(real), frozenset(suffixes))
    walker.run()
    order = sorted(range(len(walker.names)), key=lambda i: os.fsencode(walker.names[i]))
    stats = np.frombuffer(walker.stats, dtype=np.int64).reshape(-1, 3)[order]
    names = [walker.names[i] for i in order]
    return Listing(real, names, stats, tuple(sorted(walker.refused)), dict(walker.unknown))


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
        while self._open:
            folder, prefix, through_link = self._open.pop()
            for entry in self._entries(folder, prefix):
                if not entry.name.startswith("."):
                    self._look(entry, prefix + entry.name, through_link)

    def _entries(self, folder: str, prefix: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                yield from entries
        except OSError as error:
            self.refused.append((prefix.rstrip("/"), f"folder cannot be read: {error.strerror}"))

    def _look(self, entry: os.DirEntry[str], name: str, through_link: bool) -> None:
        try:
            if entry.is_symlink():
                self._look_at_link(entry.path, name, through_link)
            elif entry.is_dir(follow_symlinks=False):
                self._enter(entry.path, name, through_link)
            else:
                self._take(name, entry.stat(follow_symlinks=False))
        except OSError as error:
            self.refused.append((name, error.strerror or str(error)))

    def _look_at_link(self, path: str, name: str, through_link: bool) -> None:
        try:
            real = os.path.realpath(path, strict=True)
        except OSError:
            self.refused.append((name, "a link that leads nowhere or in a circle"))
            return
        stat_result = os.stat(real)
        if not real.startswith(self.root + os.sep):
            self.refused.append((name, "a link that leads out of the data set's folder"))
        elif not stat.S_ISDIR(stat_result.st_mode):
            self._take(name, stat_result)
        elif through_link or path.startswith(real + os.sep):
            self.refused.append((name, "a link to a folder that is listed already"))
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


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()
