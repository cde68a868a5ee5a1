"""Reads protobuf messages field by field without a schema, from memory or a file of any size, and writes fields."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Wire types of fields."""

CUT_SHORT = "the copy or download was cut short"

_WINDOW = 8192  # bytes read at a time: nearly always a whole field header


class Damaged(Exception):
    """The message is invalid. reason: what is wrong. offset: of the byte."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason, self.offset = reason, offset


class Field(NamedTuple):
    """number, kind: of the field. at: the offset of its header. start, end: the range of its content. value: of
    VARINT."""

    number: int
    kind: int
    at: int
    start: int
    end: int
    value: int


class Window:
    """Bytes that are read a few at a time. source: the bytes, or a file descriptor. size: of all."""

    def __init__(self, source: bytes | int, size: int) -> None:
        self._handle = source if isinstance(source, int) else None
        self.size = size
        self._start, self._held = 0, b"" if isinstance(source, int) else source

    def take(self, at: int, count: int) -> bytes:
        """`count` bytes from `at`; fewer at the end."""
        inside = at - self._start
        if self._handle is not None and (inside < 0 or inside + count > len(self._held)):
            self._start, self._held = at, os.pread(self._handle, max(count, _WINDOW), at)
            inside = 0
        return self._held[inside : inside + count]

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """A number of up to ten bytes before `end`, and the offset after it. Raises Damaged."""
        data = self.take(at, min(10, end - at))
        read = first_varint(data)
        if read is None:
            raise Damaged(CUT_SHORT if at + len(data) == self.size else "a number does not end", at)
        return read[0], at + read[1]

    def length(self, at: int, end: int) -> tuple[int, int]:
        """The range of a length-delimited field's content: its start and end. Raises Damaged."""
        count, begin = self.varint(at, end)
        if count > end - begin:
            missing = begin + count - end
            reason = CUT_SHORT if end == self.size else "its lengths contradict each other"
            raise Damaged(f"{missing:,} bytes are missing: {reason}", at)
        return begin, begin + count

    def fields(self, begin: int, end: int) -> Iterator[Field]:
        """The fields of the message between two offsets; one of a deprecated wire type has no content, and fields after
        it cannot be read. Raises Damaged."""
        at = begin
        while at < end:
            key, start = self.varint(at, end)
            value, last = 0, start
            match key & 7:
                case 0:
                    value, last = self.varint(start, end)
                case 1 | 5 as kind:
                    last = start + (8 if kind == FIXED64 else 4)
                case 2:
                    start, last = self.length(start, end)
            if last > end:
                raise Damaged(CUT_SHORT, at)
            yield Field(key >> 3, key & 7, at, start, last, value)
            at = last


def values(data: bytes) -> Iterator[tuple[int, bytes | int | float]]:
    """Number and value of each field of a message in memory. Raises Damaged."""
    for field_ in Window(data, len(data)).fields(0, len(data)):
        content = data[field_.start : field_.end]
        match field_.kind:
            case 0:
                yield field_.number, field_.value
            case 1 | 2:
                yield field_.number, content
            case 5:
                yield field_.number, float(struct.unpack("<f", content)[0])
            case kind:
                raise Damaged(f"a field of the unknown kind {kind}", field_.at)


def first_varint(data: bytes) -> tuple[int, int] | None:
    """The number at the start of some bytes, and its length in bytes; None where it does not end."""
    number = 0
    for index, byte in enumerate(data):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, index + 1
    return None


def field(number: int, content: bytes) -> bytes:
    """Encodes a field of bytes."""
    return head(number, len(content)) + content


def head(number: int, size: int) -> bytes:
    """Encodes the header of a field of `size` bytes."""
    return varint(number << 3 | BYTES) + varint(size)


def varint(number: int) -> bytes:
    """Encodes a number, seven bits a byte, the lowest first."""
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*written, number))
