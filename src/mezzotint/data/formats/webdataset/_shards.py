"""Tar shards: which files are meant, what is in one, and which members belong together. For the format `webdataset`."""

from __future__ import annotations

import os
import re
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np

from mezzotint.data.files.listing import Listing
from mezzotint.errors import DatasetError

_BLOCK = tarfile.BLOCKSIZE
_RANGE = re.compile(r"\{([^{}]*)\}")
_SPAN = re.compile(r"(\d+)\.\.(\d+)")
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"\x28\xb5": "zstd"}
_MOST = 1_000_000
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Field:
    """One member: its name in the archive, and where its bytes lie there."""

    name: str
    offset: int
    size: int


@dataclass(slots=True)
class Group:
    """Members of one key. fields: by ending, lower case, without its first dot. fault: why it makes no sample."""

    fields: dict[str, Field] = field(default_factory=dict)
    fault: str = ""


def listed(path: Path) -> Listing:
    """The shards that a path with ranges in braces names, or a single one. Raises DatasetError E1201 for one that is
    not there, E1281 for braces that are none."""
    paths = [Path(name).expanduser().absolute() for name in expanded(os.fspath(path))]
    lost = [one for one in paths if not one.is_file()]
    if lost:
        more = f" and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
        raise DatasetError(
            f"{path}: no such file: {', '.join(map(str, lost[:_SHOWN]))}{more}; data.path names shards that lie on "
            "this machine's disks",
            code="E1201",
        )
    root = Path(os.path.commonpath([one.parent for one in paths])).resolve()
    names = sorted({os.fspath(one.parent.resolve().relative_to(root) / one.name) for one in paths}, key=os.fsencode)
    stat_results = [os.stat(root / name) for name in names]
    stats = np.array([(one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in stat_results], dtype=np.int64)
    return Listing(root, names, stats, (), {})


def expanded(text: str) -> list[str]:
    """`a{00..02}b` → a00b, a01b, a02b; `{x,y}` → x, y; several braces in all combinations. Raises DatasetError
    E1281."""
    parts = _RANGE.split(text)
    choices = [[part] if number % 2 == 0 else _choices(part, text) for number, part in enumerate(parts)]
    count = int(np.prod([len(choice) for choice in choices], dtype=object))
    if any(sign in part for part in parts[::2] for sign in "{}") or count > _MOST:
        raise DatasetError(f"{text}: {_how()}", code="E1281")
    return ["".join(choice) for choice in product(*choices)]


def _choices(inside: str, text: str) -> list[str]:
    span = _SPAN.fullmatch(inside)
    if span is None and "," not in inside:
        raise DatasetError(f"{text}: {_how()}", code="E1281")
    if span is None:
        return inside.split(",")
    first, last = int(span[1]), int(span[2])
    if not first <= last < first + _MOST:
        raise DatasetError(f"{text}: {_how()}", code="E1281")
    width = len(span[1]) if span[1].startswith("0") or len(span[1]) == len(span[2]) else 0
    return [f"{number:0{width}d}" for number in range(first, last + 1)]


def _how() -> str:
    return "a range of shards is written {000..011}, from the smaller number, or {train,extra}"


def members(path: Path) -> Iterator[tuple[str, Field | None]]:
    """The name of every member of a shard and where it lies, None for what is no plain file. Headers alone are read.
    Raises DatasetError E1280 for what is no tar archive, is compressed, damaged or cut off."""
    last = ""
    try:
        with open(path, "rb") as file, tarfile.open(
            fileobj=file, mode="r:", encoding="utf-8", errors="surrogateescape"
        ) as archive:  # fmt: skip
            for info in archive:
                last = info.name
                if not info.isdir():
                    is_plain = info.isreg() and not info.issparse()
                    yield info.name, Field(info.name, info.offset_data, info.size) if is_plain else None
            file.seek(archive.offset)
            rest = file.read(_BLOCK)
            if rest.strip(b"\0") or 0 < len(rest) < _BLOCK:
                raise tarfile.ReadError(f"byte {archive.offset:,} is no header")
    except tarfile.TarError as error:
        raise DatasetError(f"{path}: {_why(path, last, error)}", code="E1280") from error
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror or error}", code="E1280") from error


def _why(path: Path, last: str, error: Exception) -> str:
    with open(path, "rb") as file:
        head = file.read(2)
    if not head:
        return "is empty; fetch the shard again, or take it away"
    if head in _COMPRESSED:
        return f"is compressed ({_COMPRESSED[head]}), so that nothing in it can be read by its place; unpack it to .tar"
    after = f" after its member {last!a}" if last else ""
    return f"is no whole tar archive: it ends or is damaged{after} ({error}); fetch the shard again, or take it away"


def grouped(path: Path) -> tuple[dict[str, Group], int]:
    """The members of a shard by key, in the order of their first, and how many have no key: a name that begins with a
    dot or has none. A key is a member's path up to the first dot of its last part. Raises as `members`."""
    groups: dict[str, Group] = {}
    others = 0
    for name, place in members(path):
        folder, slash, last = name.removeprefix("./").rpartition("/")
        stem, _, ending = last.partition(".")
        if not stem or not ending:
            others += 1
            continue
        group, ending = groups.setdefault(folder + slash + stem, Group()), ending.lower()
        if place is None:
            group.fault = f"{last!a} is a link or a device, not a file"
        elif ending in group.fields:
            group.fault = f"{last!a} stands twice in the shard, and nobody can tell which is meant"
        else:
            group.fields[ending] = place
    return groups, others


def read(path: Path, place: Field) -> bytes:
    """The bytes of a member. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        assert stat.S_ISREG(os.fstat(handle).st_mode)
        return os.pread(handle, place.size, place.offset)
    finally:
        os.close(handle)
