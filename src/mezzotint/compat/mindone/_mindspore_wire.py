"""The bytes of MindSpore's checkpoints: a protobuf message, read field by field. Of a damaged or malicious file only
the heads of entries are read.

    Checkpoint: 1 = Value, repeated
    Value: 1 = name, 2 = TensorProto
    TensorProto: 1 = dimension (repeated), 2 = name of the type, 3 = content, little-endian
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mezzotint.weights.files.protobuf import BYTES, VARINT, Damaged, Window, field, first_varint, head, varint

TRAILER = b"crc_num"
TRAILER_SIZE = len(TRAILER) + 10
"""Bytes at the end of a file with a checksum: a marker, and a CRC-32 of everything before it in ten bytes,
big-endian."""

NAME_LIMIT = 4096  # bytes
_RANK_LIMIT = 64


@dataclass(frozen=True, slots=True)
class Value:
    """One entry of a file. dims: as written. kind: name of the type. start, size: offset and bytes of its content. at,
    end: offsets of the entry."""

    name: str
    dims: tuple[int, ...]
    kind: str
    start: int
    size: int
    at: int
    end: int


def find_trailer(file: int, size: int) -> int | None:
    """The offset of the checksum at the end of a file; None if there is none."""
    at = size - TRAILER_SIZE
    return at if at >= 0 and os.pread(file, len(TRAILER), at) == TRAILER else None


def values(file: int, size: int) -> Iterator[Value]:
    """Yields the entries of an open file, in order, without the checksum at its end. Raises Damaged."""
    window, at, stop = Window(file, size), 0, find_trailer(file, size)
    while at < size and at != stop:
        key, inside = window.varint(at, size)
        if key != 1 << 3 | BYTES:
            raise Damaged(f"an entry starts with {key}, which is not valid in a checkpoint", at)
        begin, end = window.length(inside, size)
        yield replace(_value(window, begin, end), end=end)
        at = end


def _value(window: Window, begin: int, end: int) -> Value:
    name, tensor = "", (0, 0)
    for number, kind, at, start, last, _ in window.fields(begin, end):
        match number, kind:
            case (1, 2) if not name:
                name = _text(window, start, last)
            case (2, 2) if tensor == (0, 0):
                tensor = start, last
            case (3, _):
                raise Damaged("it contains a sparse table, which is not supported", at)
            case _:
                raise Damaged(f"an entry has an unexpected field ({number}, of kind {kind})", at)
    if not name or tensor == (0, 0):
        raise Damaged(f"an entry has no {'tensor' if name else 'name'}", begin)
    return _tensor(window, name, tensor, begin)


def _tensor(window: Window, name: str, span: tuple[int, int], begin: int) -> Value:
    dims: list[int] = []
    kind, content = "", (0, 0)
    for number, wire_kind, at, start, last, value in window.fields(*span):
        match number, wire_kind:
            case 1, 0:
                dims.append(value)
            case 1, 2:  # the same, in packed form
                dims += _packed(window, start, last)
            case (2, 2) if not kind:
                kind = _text(window, start, last)
            case (3, 2) if content == (0, 0):
                content = start, last
            case _:
                raise Damaged(f"{name!r} has an unexpected field ({number}, of kind {wire_kind})", at)
        if len(dims) > _RANK_LIMIT or any(dim >> 63 for dim in dims):
            raise Damaged(f"{name!r} has impossible dimensions", at)
    if not kind:
        raise Damaged(f"{name!r} has no type", begin)
    first, last = content if content != (0, 0) else (span[1], span[1])
    return Value(name, tuple(dims), kind, first, last - first, begin, span[1])


def _packed(window: Window, at: int, end: int) -> Iterator[int]:
    if end - at > 10 * _RANK_LIMIT:
        raise Damaged("a tensor has impossible dimensions", at)
    while at < end:
        dim, at = window.varint(at, end)
        yield dim


def _text(window: Window, begin: int, end: int) -> str:
    if not 0 < end - begin <= NAME_LIMIT:
        raise Damaged(f"a name has {end - begin:,} bytes", begin)
    content_bytes = window.take(begin, end - begin)
    if not _is_text(content_bytes):
        raise Damaged("a name is not text", begin)
    return content_bytes.decode()


def _is_text(content_bytes: bytes) -> bool:
    try:
        return content_bytes.decode().isprintable()
    except UnicodeDecodeError:
        return False


def is_checkpoint_start(start: bytes) -> bool:
    """Whether a file with these first bytes is such a checkpoint: it has an entry, its name, and the field after it."""
    numbers, at = [], 0
    for _ in range(4):
        read = first_varint(start[at : at + 10])
        if read is None:
            return False
        numbers.append(read[0])
        at += read[1]
    entry, whole, inner, size = numbers
    name, after = start[at : at + size], start[at + size : at + size + 1]
    plausible = entry == inner == 1 << 3 | BYTES and 0 < size <= min(whole, NAME_LIMIT) and len(name) == size
    return plausible and _is_text(name) and after in (b"", bytes([2 << 3 | BYTES]))


def head_of(name: str, dims: tuple[int, ...], kind: str, size: int) -> bytes:
    """The bytes of an entry before its content of `size` bytes."""
    tensor = b"".join(varint(1 << 3 | VARINT) + varint(dim) for dim in dims)
    tensor += field(2, kind.encode()) + head(3, size)
    before = field(1, name.encode()) + head(2, len(tensor) + size)
    return head(1, len(before) + len(tensor) + size) + before + tensor
