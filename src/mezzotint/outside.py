"""The one way to open small files from outside: configurations, prompts, manifests, indexes, the numbers of a run.

What a stranger's folder has under such a name may be a pipe that nobody writes to, a device without end, a file of any
size, or JSON that is nested without end. Here it is an error of the operating system's kind, or a ValueError, each with
a sentence, which the reader of the file turns into his own. Links are followed: what counts is what they lead to.
Files of a run folder are read with `within`: a link that leads out of the folder is refused.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable
from io import BufferedReader
from itertools import accumulate
from pathlib import Path
from typing import Any

SMALL = 4_000_000
"""Bytes of a configuration; most have a few thousand."""

LISTED = 256_000_000
"""Bytes of what lists many things: a checkpoint's tensors, the shards of a model, the captions of a data set."""

LOGGED = 4_000_000_000
"""Bytes of a log that grows with a run, a line a step."""

_DEPTH = 200
"""So deep may JSON be nested; what is met in practice ends at ten."""

_DIGITS = 308
"""So many digits may a number in JSON have: every integer of so many fits a float64."""

_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip
_LONG = re.compile(rf"[0-9]{{{_DIGITS + 1}}}")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_NO_BRACKETS = re.compile(r"[^\[\]{}]+")
_NESTING = {"[": 1, "{": 1, "]": -1, "}": -1}


class NoPlainFile(OSError):
    """What lies there is a pipe, a device, a folder, or larger than such a file can be. `strerror` says which."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(errno.EINVAL, what, str(path))


def leads_out(path: Path, folder: Path) -> bool:
    """Whether links on the way to `path` lead to a place that is not in `folder`."""
    real, top = os.path.realpath(path), os.path.realpath(folder)
    return real != top and not real.startswith(top.rstrip("/") + "/")


def open_plain(path: Path, *, limit: int | None = None, within: Path | None = None) -> BufferedReader:
    """Opens a file for reading: a regular one alone, of at most `limit` bytes. Never waits for anybody. within: a
    folder that links on the way must not lead out of.

    Raises FileNotFoundError and the system's other errors, NoPlainFile.
    """
    if within is not None and leads_out(path, within):
        raise NoPlainFile(path, "it is a link that leads out of its folder")
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise NoPlainFile(path, _no_plain_file(status))
        if limit is not None and status.st_size > limit:
            raise NoPlainFile(path, f"it is larger than {limit:,} bytes, with {status.st_size:,}")
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def said_of(path: Path) -> str:
    """`it is a pipe, no plain file` where something lies that is neither a plain file nor a folder, for who would say
    otherwise that nothing is there. "" for these two, and where nothing is. Opens nothing."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ""
    return "" if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) else _no_plain_file(status)


def read_bytes(path: Path, *, limit: int = SMALL, within: Path | None = None) -> bytes:
    """The content of a plain file of at most `limit` bytes. Raises as `open_plain`."""
    with open_plain(path, limit=limit, within=within) as file:
        content = file.read(os.fstat(file.fileno()).st_size + 1)  # as many bytes are set aside as are asked for
        while len(content) <= limit and (more := file.read(1 << 20)):
            content += more
    if len(content) > limit:  # it has grown since, or the system told no size
        raise NoPlainFile(path, f"it is larger than {limit:,} bytes")
    return content


def read_text(
    path: Path, *, limit: int = SMALL, encoding: str = "utf-8", errors: str = "strict", within: Path | None = None
) -> str:
    """The text of a plain file, with `\\n` at the ends of lines. Raises as `read_bytes`, and UnicodeDecodeError."""
    text = read_bytes(path, limit=limit, within=within).decode(encoding, errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path, *, limit: int = SMALL, within: Path | None = None) -> Any:
    """What a JSON file says. Raises as `read_text`, and as `parse_json`."""
    return parse_json(read_text(path, limit=limit, within=within))


def read_lines(path: Path, *, limit: int = LOGGED, within: Path | None = None) -> list[dict[str, Any]]:
    """The JSON objects of a file, one a line; lines that a crash has torn are left out. Empty when there is no file.
    Raises as `open_plain`."""
    objects: list[dict[str, Any]] = []
    try:
        file = open_plain(path, limit=limit, within=within)
    except FileNotFoundError:
        return objects
    with file:
        for line in file:
            try:
                value = parse_json(line.decode("utf-8", "replace"))
            except ValueError:
                continue
            if isinstance(value, dict):
                objects.append(value)
    return objects


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON. Raises ValueError where a key stands twice: readers differ in which of the two they take."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return value


def parse_json(text: str, *, pairs: Callable[[list[tuple[str, Any]]], Any] = unique_keys) -> Any:
    """What a JSON text says. pairs: makes an object of its keys and values.

    Raises json.JSONDecodeError, and ValueError for what is nested too deep, has a number of too many digits, or a key
    twice.
    """
    if text.count("[") + text.count("{") > _DEPTH and _depth(text) > _DEPTH:
        raise ValueError(f"it is nested more than {_DEPTH} deep")
    if _LONG.search(text):  # it may stand in a text: only then each number is looked at
        return json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=lambda digits: int(_not_too_long(digits)),
            parse_float=lambda digits: float(_not_too_long(digits)),
        )
    return json.loads(text, object_pairs_hook=pairs)


def _no_plain_file(status: os.stat_result) -> str:
    return f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'something else')}, no plain file"


def _depth(text: str) -> int:
    """How deep a text is nested at most, what stands in quotes left out."""
    unquoted = "".join(_ESCAPED.sub("", text).split('"')[::2])
    return max(accumulate(map(_NESTING.__getitem__, _NO_BRACKETS.sub("", unquoted))), default=0)


def _not_too_long(digits: str) -> str:
    if len(digits) > _DIGITS:
        raise ValueError(f"it has a number of {len(digits):,} digits")
    return digits
