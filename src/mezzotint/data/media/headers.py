"""What a plain picture says of itself in its header, without decoding it: for `decoding.glance`.

Plain is a JPEG, PNG or WebP of 8 bits without transparency and of one frame, whose file reaches to its end. Of anything
else, and of anything odd, nothing is said: then the picture is decoded.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import BinaryIO

_MOST_PARTS = 10_000
"""Of a file of more segments or chunks nothing is said."""

_TAIL = 4096
"""A JPEG says in this many bytes at its end that it ends, or it is decoded."""

_EXIF = b"Exif\0\0"
_FRAMES = {0xC0, 0xC1, 0xC2}
_SKIPPED = {0xC4, 0xDB, 0xDD, 0xFE, 0xE0, *range(0xE3, 0xF0)}
_LEAST = {0xE0: 16, 0xEE: 14}
_PROFILE = b"ICC_PROFILE\0"
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_SKIPPED = {b"PLTE", b"IDAT", b"pHYs", b"gAMA", b"sRGB", b"cHRM", b"bKGD", b"tIME", b"sBIT", b"hIST"}
_PNG_TEXTS = {b"tEXt", b"zTXt", b"iTXt"}
_TELLING = (b"Raw profile type", b"XML:com.adobe.xmp", b"exif", b"icc_profile", b"transparency", b"xmp")
"""Texts of a PNG that Pillow takes for more than texts."""

_WEBP_EXIF = 0x08
_SEGMENT, _CHUNK, _RIFF = struct.Struct(">BBH").unpack_from, struct.Struct(">I4s").unpack_from, struct.Struct("<4sI")
_FRAME = struct.Struct(">BHHB").unpack_from


class _NotPlain(Exception):
    """This picture has to be decoded."""


@dataclass(frozen=True, slots=True)
class Header:
    """width, height: as stored. orientation: 1 to 8 turn as EXIF says; other numbers mean nothing. mode: Pillow's, "L"
    or "RGB". profile: the colour profile, or nothing."""

    width: int
    height: int
    orientation: int
    mode: str
    profile: bytes = b""


def of(data: bytes) -> Header | None:
    """What a whole file says of its picture, as Pillow would after decoding it; None where it has to be decoded."""
    try:
        if data.startswith(b"\xff\xd8\xff"):
            header = _jpeg(data)
        elif data.startswith(_PNG):
            header = _png(data)
        elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
            header = _webp(data)
        else:
            return None
    except (_NotPlain, struct.error):  # the second: the file ends too soon
        return None
    return header if header.width and header.height else None


def _jpeg(data: bytes) -> Header:
    at, frame, orientation, profile = 2, (0, 0, 0), 0, b""
    while True:
        mark, kind, length = _SEGMENT(data, at)
        _require(mark == 0xFF and length >= _LEAST.get(kind, 2))
        if kind == 0xDA:
            break
        start, at = at + 4, at + 2 + length
        if kind in _SKIPPED:
            continue
        part = data[start:at]
        if kind in _FRAMES:
            bits, *numbers = _FRAME(part)
            _require(bits == 8 and frame == (0, 0, 0))
            frame = numbers[0], numbers[1], numbers[2]
        elif kind == 0xE1 and part.startswith(_EXIF):
            _require(not orientation)
            orientation = _orientation(part[6:])
        elif kind == 0xE2 and part.startswith(_PROFILE):
            _require(not profile and frame == (0, 0, 0) and part[12:14] == b"\x01\x01" and len(part) > 14)
            profile = part[14:]
        else:  # XMP may say the orientation too
            _require(kind in (0xE1, 0xE2) and b"Orientation" not in part)
    height, width, layers = frame
    _require(layers in (1, 3) and data.rfind(b"\xff\xd9", max(at, len(data) - _TAIL)) > 0)
    return Header(width, height, orientation or 1, "L" if layers == 1 else "RGB", profile)


def _png(data: bytes) -> Header:
    length, kind, width, height, bits, colour = struct.unpack_from(">I4sIIBB", data, 8)
    _require(kind == b"IHDR" and length == 13 and bits == 8 and colour in (0, 2))
    at, orientation, has_pixels = 33, 0, False
    for _ in range(_MOST_PARTS):
        length, kind = _CHUNK(data, at)
        start, at = at + 8, at + 12 + length
        has_pixels |= kind == b"IDAT"
        if kind == b"IEND":
            _require(has_pixels)
            return Header(width, height, orientation or 1, "L" if colour == 0 else "RGB")
        if kind == b"eXIf":
            _require(not orientation)
            orientation = _orientation(data[start : at - 4])
        elif kind in _PNG_TEXTS:
            _require(not data.startswith(_TELLING, start))
        else:
            _require(kind in _PNG_SKIPPED)
    raise _NotPlain


def _webp(data: bytes) -> Header:
    size = 8 + int.from_bytes(data[4:8], "little")
    _require(len(data) >= size)
    at, canvas, frame, flags, orientation = 12, (0, 0), (0, 0), 0, 0
    while at < size:
        kind, length = _RIFF.unpack_from(data, at)
        start, at = at + 8, at + 8 + length + length % 2
        if kind == b"VP8X":
            flags = data[start]
            # neither colour profile nor transparency, XMP or several frames
            _require(start == 20 and length == 10 and not flags & ~_WEBP_EXIF)
            numbers = data[start + 4 : start + 10]
            canvas = int.from_bytes(numbers[:3], "little") + 1, int.from_bytes(numbers[3:], "little") + 1
        elif kind == b"EXIF":
            _require(not orientation)
            orientation = _orientation(data[start : start + length].removeprefix(_EXIF))
        else:
            _require(frame == (0, 0))
            frame = _webp_frame(kind, data[start : start + min(length, 10)])
    _require(at == size and canvas in ((0, 0), frame) and bool(orientation) == bool(flags & _WEBP_EXIF))
    return Header(*frame, orientation or 1, "RGB")


def _webp_frame(kind: bytes, part: bytes) -> tuple[int, int]:
    if kind == b"VP8 ":
        code, width, height = struct.unpack("<3x3sHH", part)
        _require(code == b"\x9d\x01\x2a")
        return width & 0x3FFF, height & 0x3FFF
    _require(kind == b"VP8L")
    signature, bits = struct.unpack("<BI", part[:5])
    _require(signature == 0x2F and not bits >> 28)  # no transparency, version 0
    return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1


def _orientation(exif: bytes) -> int:
    """That of the first directory of a TIFF header; 1 where it names none."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    _require(order is not None)
    [at] = struct.unpack_from(f"{order}I", exif, 4)
    [num] = struct.unpack_from(f"{order}H", exif, at)
    entries = exif[at + 2 : at + 2 + 12 * num]
    _require(len(entries) == 12 * num)
    turns = []
    for tag, kind, count, field in struct.iter_unpack(f"{order}HHI4s", entries):
        size = count * _SIZES.get(kind, 0)
        # before 13 Pillow reads no further behind an entry whose value lies outside
        _require(size <= 4 or struct.unpack(f"{order}I", field)[0] + size <= len(exif))
        if tag == 0x0112:
            turns.append((kind, count, *struct.unpack(f"{order}H2x", field)))
    if not turns:
        return 1
    kind, count, value = turns[0]
    _require(len(turns) == 1 and kind == 3 and count == 1 and value > 0)
    return int(value)


_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}
"""Bytes of a value, by TIFF's types."""


def _require(is_plain: bool) -> None:
    if not is_plain:
        raise _NotPlain


_MOST_VALUES = 1 << 20
"""Numbers in an entry of a TIFF's directory; one for each strip or tile of a large picture are far fewer."""


def claims_many_values(file: BinaryIO) -> bool:
    """Whether an entry in the first two directories of a TIFF, which Pillow reads, has more than a million numbers: it
    would make an object of each."""
    file.seek(0)
    head = file.read(16)
    order, is_big = "<" if head[:2] == b"II" else ">", 43 in head[2:4]
    word, entry = (f"{order}Q", f"{order}HHQQ") if is_big else (f"{order}I", f"{order}HHII")
    try:
        [at] = struct.unpack_from(word, head, 8 if is_big else 4)
        for _ in range(2):
            file.seek(at)
            [num] = struct.unpack(f"{order}Q", file.read(8)) if is_big else struct.unpack(f"{order}H", file.read(2))
            if num > _MOST_VALUES:
                return True
            entries = file.read(struct.calcsize(entry) * num)
            for _, kind, count, _ in struct.iter_unpack(entry, entries):
                if count > _MOST_VALUES and _SIZES.get(kind) != 1:  # bytes are kept as they are
                    return True
            [at] = struct.unpack(word, file.read(struct.calcsize(word)))
            if not at:
                return False
    except (struct.error, OverflowError, OSError):  # Pillow says what is wrong with it
        return False
    return False


_PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""First column and row of each part of an interlaced PNG, and how far apart its columns and rows are."""
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def lacks_rows(file: BinaryIO) -> bool:
    """Whether the pixels of a PNG, which can be unpacked without an error, are fewer than its header says."""
    file.seek(len(_PNG))
    expected, there, inflater = 0, 0, zlib.decompressobj()
    while len(head := file.read(8)) == 8 and head[4:] != b"IEND":
        left = int.from_bytes(head[:4], "big")
        if head[4:] == b"IHDR":
            expected = _unpacked_bytes(file.read(13))
            left -= 13
        while head[4:] == b"IDAT" and left and (data := file.read(min(left, 1 << 20))):
            left -= len(data)
            while data:
                there += len(inflater.decompress(data, 1 << 20))
                data = inflater.unconsumed_tail
        file.seek(left + 4, 1)
    return there < expected


def _unpacked_bytes(header: bytes) -> int:
    """Bytes of a PNG's rows, each with its filter's, by the content of its chunk IHDR."""
    width, height, depth, kind, _, _, is_interlaced = struct.unpack(">IIBBBBB", header)
    bits = depth * _CHANNELS.get(kind, 0)
    passes = _PASSES if is_interlaced else ((0, 0, 1, 1),)
    sides = [(-(-(width - x) // dx), -(-(height - y) // dy)) for x, y, dx, dy in passes]
    return sum(rows * (1 + (columns * bits + 7) // 8) for columns, rows in sides if columns > 0)
