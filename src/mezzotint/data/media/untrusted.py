"""Checks for damaged or malicious files that Pillow does not do. Called by `decoding.py`."""

from __future__ import annotations

import os
import struct
import zlib
from typing import BinaryIO

_MAX_VALUES = 1 << 20
"""Maximum number of values in one TIFF tag. Even large images have far fewer: one for each strip or tile."""

_ONE_BYTE_TYPES = {1, 2, 6, 7}
"""TIFF types that Pillow stores as bytes, without an object for each value."""


def has_oversized_tag(file: BinaryIO) -> bool:
    """Whether a tag in the first two directories of a TIFF, which Pillow reads, has more than a million values. Pillow
    would create a Python object for each."""
    file.seek(0)
    head = file.read(16)
    order, is_big = "<" if head[:2] == b"II" else ">", 43 in head[2:4]
    word, entry = (f"{order}Q", f"{order}HHQQ") if is_big else (f"{order}I", f"{order}HHII")
    try:
        [at] = struct.unpack_from(word, head, 8 if is_big else 4)
        for _ in range(2):
            file.seek(at)
            [num] = struct.unpack(f"{order}Q", file.read(8)) if is_big else struct.unpack(f"{order}H", file.read(2))
            if num > _MAX_VALUES:
                return True
            entries = file.read(struct.calcsize(entry) * num)
            for _, kind, count, _ in struct.iter_unpack(entry, entries):
                if count > _MAX_VALUES and kind not in _ONE_BYTE_TYPES:
                    return True
            [at] = struct.unpack(word, file.read(struct.calcsize(word)))
            if not at:
                return False
    except (struct.error, OverflowError, OSError):  # Pillow reports what is wrong with the file
        return False
    return False


_JPEG_END = b"\xff\xd9"
_MAX_TRAILING_BYTES = 4096
"""A JPEG whose end marker is further from the end of the file counts as truncated."""


def is_cut_short(file: BinaryIO) -> bool:
    """Whether a JPEG has no end marker near its end, or a WebP is shorter than its header says. Pillow detects this
    only while decoding. False for other files."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(8)
    if head[:4] == b"RIFF":
        return size < 8 + int.from_bytes(head[4:], "little")
    if head[:3] != b"\xff\xd8\xff":
        return False
    file.seek(max(0, size - _MAX_TRAILING_BYTES))
    return _JPEG_END not in file.read()


_PNG_SIGNATURE_BYTES = 8
_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""First column, first row, and steps between columns and rows of each pass of an interlaced PNG."""
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Channels by PNG colour type."""


def has_too_few_rows(file: BinaryIO) -> bool:
    """Whether a PNG contains fewer pixels than its header says. Pillow fills missing rows with zeros. The compressed
    data must be valid: call this after Pillow has decoded the image."""
    file.seek(_PNG_SIGNATURE_BYTES)
    expected, actual, inflater = 0, 0, zlib.decompressobj()
    while len(head := file.read(8)) == 8 and head[4:] != b"IEND":
        left = int.from_bytes(head[:4], "big")
        if head[4:] == b"IHDR":
            expected = _unpacked_bytes(file.read(13))
            left -= 13
        while head[4:] == b"IDAT" and left and (data := file.read(min(left, 1 << 20))):
            left -= len(data)
            while data:
                actual += len(inflater.decompress(data, 1 << 20))
                data = inflater.unconsumed_tail
        file.seek(left + 4, 1)
    return actual < expected


def _unpacked_bytes(header: bytes) -> int:
    """Bytes of all rows of a PNG, each with its filter byte, from the content of the IHDR chunk."""
    width, height, depth, kind, _, _, is_interlaced = struct.unpack(">IIBBBBB", header)
    bits = depth * _CHANNELS.get(kind, 0)
    passes = _PASSES if is_interlaced else ((0, 0, 1, 1),)
    sides = [(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in passes]
    return sum(rows * (1 + (columns * bits + 7) // 8) for columns, rows in sides if columns > 0)
