"""Files inside tar archives, read where they lie: a member is named by a path below its archive,
ARCHIVE/NAME@PLACE+SIZE, which no file of a disk can have. Nothing is unpacked.
"""

from __future__ import annotations

import io
import os
import re
import stat
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from mezzotint.data.files.listing import Unusable

MAX_BYTES = 1 << 30
"""A picture of more bytes is not read."""

_PLACE = re.compile(r"@(\d{1,15})\+(\d{1,15})$")


@dataclass(frozen=True, slots=True)
class Member:
    """So many bytes of an archive, from an offset on. name: any, for the reader."""

    archive: Path
    name: str
    offset: int
    size: int

    @property
    def path(self) -> Path:
        """The path by which it is read."""
        return self.archive / f"{self.name.rpartition('/')[2]}@{self.offset}+{self.size}"

    def opened(self) -> BufferedReader:
        """Its bytes, as a file. Raises Unusable when the archive ends before, OSError."""
        if self.size > MAX_BYTES:
            raise Unusable(too_large(self.size))
        handle = os.open(self.archive, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = os.pread(handle, self.size, self.offset)
        finally:
            os.close(handle)
        if len(data) < self.size:
            raise Unusable("the archive ends before it does")
        return BufferedReader(io.BytesIO(data))


def too_large(size: int) -> str:
    """Why a picture of so many bytes is not read."""
    return f"{size:,} bytes are more than a picture may have ({MAX_BYTES:,})"


def named(path: Path) -> Member | None:
    """What a path of `Member.path` says, whether its archive is there or not; None for any other path."""
    match = _PLACE.search(path.name)
    return None if match is None else Member(path.parent, path.name[: match.start()], int(match[1]), int(match[2]))


def member_at(path: Path) -> Member | None:
    """What a path of `Member.path` means where its archive is a file; None for any other path."""
    member = named(path)
    try:
        return member if member is not None and stat.S_ISREG(os.stat(member.archive).st_mode) else None
    except OSError:
        return None


def stats(path: str) -> tuple[int, int, int]:
    """Size in bytes, times of modification and change in nanoseconds; of a member those of its archive. Raises
    OSError."""
    member = member_at(Path(path)) if "@" in path else None
    stat_result = os.stat(path if member is None else member.archive)
    return (stat_result.st_size if member is None else member.size), stat_result.st_mtime_ns, stat_result.st_ctime_ns
