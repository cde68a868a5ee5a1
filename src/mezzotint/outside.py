"""The only way to open small files from outside: configurations, prompts, manifests, indexes, the metrics of a run.

Such a file in a folder from somebody else may be a pipe that nobody writes to, an endless device, a file of any size,
or JSON nested without end. These are refused with an OSError or a ValueError, each with a sentence that the caller uses
in its own message. Links are followed; their targets are checked. Files of a run folder are read with `within`: a link
that leads out of the folder is refused.
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
"""Most bytes of a configuration; most have a few thousand."""

LISTED = 256_000_000
"""Most bytes of a list: a checkpoint's tensors, the shards of a model, the captions of a data set."""

LOGGED = 4_000_000_000
"""Most bytes of a log that grows with a run, one line per step."""

_DEPTH = 200
"""The deepest nesting allowed in JSON; real files have at most about ten levels."""

_DIGITS = 308
"""The most digits allowed in a JSON number: every integer with this many fits a float64."""

_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip
_LONG = re.compile(rf"[0-9]{{{_DIGITS + 1}}}")
_ESCAPED = re.compile(r"\\.", re.DOTALL)
_NO_BRACKETS = re.compile(r"[^\[\]{}]+")
_NESTING = {"[": 1, "{": 1, "]": -1, "}": -1}


class NotRegularFile(OSError):
    """The path is a pipe, a device, a folder, or a file that is too large. `strerror` says which."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(errno.EINVAL, message, str(path))


def leads_out(path: Path, folder: Path) -> bool:
    """Whether links make `path` lead outside `folder`."""
    real, top = os.path.realpath(path), os.path.realpath(folder)
    return real != top and not real.startswith(top.rstrip("/") + "/")


def open_plain(path: Path, *, limit: int | None = None, within: Path | None = None) -> BufferedReader:
    """Opens a regular file of at most `limit` bytes for reading. Never blocks. within: a folder that links must not
    lead out of.

    Raises FileNotFoundError and other OSErrors, NotRegularFile.
    """
    if within is not None and leads_out(path, within):
        raise NotRegularFile(path, "it is a link that leads out of its folder")
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise NotRegularFile(path, _no_plain_file(status))
        if limit is not None and status.st_size > limit:
            raise NotRegularFile(path, f"it is larger than {limit:,} bytes, with {status.st_size:,}")
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def describe_file_kind(path: Path) -> str:
    """`it is a pipe, not a regular file` if something other than a regular file or a folder exists at `path`, for
    messages that would otherwise report a missing file. "" for these two, and if nothing exists. Opens nothing."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ""
    return "" if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) else _no_plain_file(status)


def read_bytes(path: Path, *, limit: int = SMALL, within: Path | None = None) -> bytes:
    """The content of a regular file of at most `limit` bytes. Raises as `open_plain`."""
    with open_plain(path, limit=limit, within=within) as file:
        content = file.read(os.fstat(file.fileno()).st_size + 1)  # read allocates as many bytes as it is asked for
        while len(content) <= limit and (more := file.read(1 << 20)):
            content += more
    if len(content) > limit:  # it has grown meanwhile, or the system reports no size
        raise NotRegularFile(path, f"it is larger than {limit:,} bytes")
    return content


def read_tail(path: Path, *, limit: int, within: Path | None = None) -> bytes:
    """The last lines of a regular file of any size, at most `limit` bytes, without one that is cut off at its start.
    Raises as `open_plain`."""
    with open_plain(path, within=within) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - limit))
        block = file.read(limit)
    return block if size <= limit else block[block.find(b"\n") + 1 :]


def read_text(
    path: Path, *, limit: int = SMALL, encoding: str = "utf-8", errors: str = "strict", within: Path | None = None
) -> str:
    """The text of a regular file, with `\\n` line ends. Raises as `read_bytes`, and UnicodeDecodeError."""
    text = read_bytes(path, limit=limit, within=within).decode(encoding, errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_json(path: Path, *, limit: int = SMALL, within: Path | None = None) -> Any:
    """The value of a JSON file. Raises as `read_text`, and as `parse_json`."""
    return parse_json(read_text(path, limit=limit, within=within))


def read_lines(path: Path, *, limit: int = LOGGED, within: Path | None = None) -> list[dict[str, Any]]:
    """The JSON objects of a file, one per line; lines torn by a crash are skipped. Empty if there is no file. Raises as
    `open_plain`."""
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
    """A JSON object. Raises ValueError for a repeated key, because readers differ in which value they use."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return value


def parse_json(text: str, *, pairs: Callable[[list[tuple[str, Any]]], Any] = unique_keys) -> Any:
    """The value of a JSON text. pairs: builds an object from its keys and values.

    Raises json.JSONDecodeError, and ValueError for too deep nesting, a number with too many digits, or a repeated key.
    """
    if text.count("[") + text.count("{") > _DEPTH and _depth(text) > _DEPTH:
        raise ValueError(f"it is nested more than {_DEPTH} levels deep")
    if _LONG.search(text):  # the digits may be part of a text, so each number is checked
        return json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=lambda digits: int(_check_length(digits)),
            parse_float=lambda digits: float(_check_length(digits)),
        )
    return json.loads(text, object_pairs_hook=pairs)


def _no_plain_file(status: os.stat_result) -> str:
    return f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'something else')}, not a regular file"


def _depth(text: str) -> int:
    """The deepest nesting of a JSON text, without quoted texts."""
    unquoted = "".join(_ESCAPED.sub("", text).split('"')[::2])
    return max(accumulate(map(_NESTING.__getitem__, _NO_BRACKETS.sub("", unquoted))), default=0)


def _check_length(digits: str) -> str:
    if len(digits) > _DIGITS:
        raise ValueError(f"it has a number of {len(digits):,} digits")
    return digits
