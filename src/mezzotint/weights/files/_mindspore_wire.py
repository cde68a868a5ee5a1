"""The bytes of MindSpore's checkpoints: a protobuf message, read field by field, so that a damaged or hostile file
costs a look at its heads and no more.

    Checkpoint: 1 = Value, again and again
    Value: 1 = name, 2 = TensorProto
    TensorProto: 1 = dimension (again and again), 2 = type in words, 3 = content, little-endian
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

TRAILER = b"crc_num"
TRAILER_SIZE = len(TRAILER) + 10
"""Bytes at the end of a file with a checksum: a word, and a CRC-32 of all before it in ten bytes, the highest first."""

CUT_SHORT = "the copy or download was cut short"

_VARINT, _BYTES = 0, 2
NAME_LIMIT = 4096  # bytes
_RANK_LIMIT = 64
_WINDOW = 8192  # bytes read at once: nearly always a whole head


class Damaged(Exception):
    """reason: what is wrong, in words. offset: at which byte of the file."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason, self.offset = reason, offset


@dataclass(frozen=True, slots=True)
class Value:
    """One entry of a file. dims: as written. kind: the type in words. start, size: where its content lies. at, end:
    where the entry does."""

    name: str
    dims: tuple[int, ...]
    kind: str
    start: int
    size: int
    at: int
    end: int


class Window:
    """A file of which a few bytes are read at a time. size: of the file."""

    def __init__(self, handle: int, size: int) -> None:
        self._handle = handle
        self.size = size
        self._start, self._held = 0, b""

    def take(self, at: int, count: int) -> bytes:
        """`count` bytes from `at`; fewer at the file's end."""
        inside = at - self._start
        if inside < 0 or inside + count > len(self._held):
            self._start, self._held = at, os.pread(self._handle, max(count, _WINDOW), at)
            inside = 0
        return self._held[inside : inside + count]

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """A number of up to ten bytes before `end`, and the place after it. Raises Damaged."""
        held = self.take(at, min(10, end - at))
        found = _number(held)
        if found is None:
            raise Damaged(CUT_SHORT if at + len(held) == self.size else "a number does not end", at)
        return found[0], at + found[1]

    def length(self, at: int, end: int) -> tuple[int, int]:
        """The bytes of a field that tells its length: where they begin and end. Raises Damaged."""
        count, begin = self.varint(at, end)
        if count > end - begin:
            short = begin + count - end
            where = CUT_SHORT if end == self.size else "its lengths contradict each other"
            raise Damaged(f"{short:,} bytes are missing: {where}", at)
        return begin, begin + count

    def trailer(self) -> int | None:
        """Where the checksum begins that the file seems to end with; None when it ends otherwise."""
        at = self.size - TRAILER_SIZE
        return at if at >= 0 and os.pread(self._handle, len(TRAILER), at) == TRAILER else None


def values(window: Window) -> Iterator[Value]:
    """The entries of a file, in order; the checksum at its end is left. Raises Damaged."""
    at, stop = 0, window.trailer()
    while at < window.size and at != stop:
        key, inside = window.varint(at, window.size)
        if key != 1 << 3 | _BYTES:
            raise Damaged(f"an entry begins with {key}, which no checkpoint has", at)
        begin, end = window.length(inside, window.size)
        yield replace(_value(window, begin, end), end=end)
        at = end


def _value(window: Window, begin: int, end: int) -> Value:
    name, at = "", begin
    tensor: tuple[int, int] | None = None
    while at < end:
        key, inside = window.varint(at, end)
        match key >> 3, key & 7:
            case (1, 2) if not name:
                first, last = window.length(inside, end)
                name = _text(window, first, last)
            case (2, 2) if tensor is None:
                tensor = first, last = window.length(inside, end)
            case (3, _):
                raise Damaged("it holds a sparse table, which is not read", at)
            case field, kind:
                raise Damaged(f"an entry has an unexpected field ({field}, of kind {kind})", at)
        at = last
    if not name or tensor is None:
        raise Damaged(f"an entry has no {'tensor' if name else 'name'}", begin)
    return _tensor(window, name, tensor, begin)


def _tensor(window: Window, name: str, span: tuple[int, int], begin: int) -> Value:
    dims: list[int] = []
    kind, (at, end) = "", span
    content: tuple[int, int] | None = None
    while at < end:
        key, inside = window.varint(at, end)
        match key >> 3, key & 7:
            case 1, 0:
                dim, last = window.varint(inside, end)
                dims.append(dim)
            case 1, 2:  # the same, packed
                first, last = window.length(inside, end)
                dims += _packed(window, first, last)
            case (2, 2) if not kind:
                first, last = window.length(inside, end)
                kind = _text(window, first, last)
            case (3, 2) if content is None:
                content = first, last = window.length(inside, end)
            case field, other:
                raise Damaged(f"{name!r} has an unexpected field ({field}, of kind {other})", at)
        if len(dims) > _RANK_LIMIT or any(dim >> 63 for dim in dims):
            raise Damaged(f"{name!r} has impossible dimensions", at)
        at = last
    if not kind:
        raise Damaged(f"{name!r} does not tell its type", begin)
    first, last = content or (end, end)
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
    held = window.take(begin, end - begin)
    if not _is_text(held):
        raise Damaged("a name is no text", begin)
    return held.decode()


def _is_text(held: bytes) -> bool:
    try:
        return held.decode().isprintable()
    except UnicodeDecodeError:
        return False


def begins(start: bytes) -> bool:
    """Whether a file with these first bytes is such a checkpoint: an entry, its name, what follows a name."""
    numbers, at = [], 0
    for _ in range(4):
        found = _number(start[at : at + 10])
        if found is None:
            return False
        numbers.append(found[0])
        at += found[1]
    entry, whole, inner, size = numbers
    name, after = start[at : at + size], start[at + size : at + size + 1]
    plausible = entry == inner == 1 << 3 | _BYTES and 0 < size <= min(whole, NAME_LIMIT) and len(name) == size
    return plausible and _is_text(name) and after in (b"", bytes([2 << 3 | _BYTES]))


def _number(held: bytes) -> tuple[int, int] | None:
    number = 0
    for place, byte in enumerate(held):
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, place + 1
    return None


def field(number: int, content: bytes) -> bytes:
    """A field of bytes as it is written."""
    return head(number, len(content)) + content


def head(number: int, size: int) -> bytes:
    """What stands before `size` bytes of a field."""
    return varint(number << 3 | _BYTES) + varint(size)


def varint(number: int) -> bytes:
    """A number as it is written, seven bits a byte, the lowest first."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def head_of(name: str, dims: tuple[int, ...], kind: str, size: int) -> bytes:
    """All of an entry that stands before `size` bytes of content."""
    told = b"".join(varint(1 << 3 | _VARINT) + varint(dim) for dim in dims)
    told += field(2, kind.encode()) + head(3, size)
    before = field(1, name.encode()) + head(2, len(told) + size)
    return head(1, len(before) + len(told) + size) + before + told
