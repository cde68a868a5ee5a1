"""Files inside tar archives, read in place: a member has a path below its archive, ARCHIVE/NAME@OFFSET+SIZE, which no
file on disk can have. Nothing is unpacked.
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
"""Maximum size of an image file."""

_BYTE_RANGE = re.compile(r"@(\d{1,15})\+(\d{1,15})$")


@dataclass(frozen=True, slots=True)
class Member:
    """A byte range of an archive. name: only for display."""

    archive: Path
    name: str
    offset: int
    size: int

    @property
    def path(self) -> Path:
        """The path of the member."""
        return self.archive / f"{self.name.rpartition('/')[2]}@{self.offset}+{self.size}"

    def open(self) -> BufferedReader:
        """Opens the member as a file. Raises Unusable if the archive is truncated, OSError."""
        if self.size > MAX_BYTES:
            raise Unusable(too_large(self.size))
        handle = os.open(self.archive, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = os.pread(handle, self.size, self.offset)
        finally:
            os.close(handle)
        if len(data) < self.size:
            raise Unusable("the archive ends before the end of this member")
        return BufferedReader(io.BytesIO(data))


def too_large(size: int) -> str:
    """The reason why an image file of this size is not read."""
    return f"{size:,} bytes are more than an image may have ({MAX_BYTES:,})"


def parse_member_path(path: Path) -> Member | None:
    """Parses a path of `Member.path`, without checking its archive; None for any other path."""
    match = _BYTE_RANGE.search(path.name)
    return None if match is None else Member(path.parent, path.name[: match.start()], int(match[1]), int(match[2]))


def member_at(path: Path) -> Member | None:
    """The member with a path of `Member.path` whose archive is a file; None for any other path."""
    member = parse_member_path(path)
    try:
        return member if member is not None and stat.S_ISREG(os.stat(member.archive).st_mode) else None
    except OSError:
        return None


def stats(path: str) -> tuple[int, int, int]:
    """Size in bytes, times of modification and change in nanoseconds; for a member the times of its archive. Raises
    OSError."""
    member = member_at(Path(path)) if "@" in path else None
    stat_result = os.stat(path if member is None else member.archive)
    return (stat_result.st_size if member is None else member.size), stat_result.st_mtime_ns, stat_result.st_ctime_ns
