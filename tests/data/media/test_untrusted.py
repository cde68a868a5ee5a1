"""Damaged files that Pillow would accept, or read at high cost."""

from __future__ import annotations

import io
import struct
import zlib

import pytest

from mezzotint.data.media import untrusted


def png(rows: int, *, is_interlaced: bool = False) -> io.BytesIO:
    """A grey PNG with a header for 8 × 8 pixels. rows: how many rows of data it contains."""
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, is_interlaced)),
        (b"IDAT", zlib.compress(bytes(9 * rows))),
        (b"IEND", b""),
    )
    parts = [struct.pack(">I", len(body)) + kind + body + bytes(4) for kind, body in chunks]
    return io.BytesIO(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


@pytest.mark.parametrize("rows", [1, 7, 8, 9])
def test_missing_png_rows_are_detected(rows: int) -> None:
    assert untrusted.has_too_few_rows(png(rows)) == (rows < 8)


def test_rows_of_interlaced_png_are_counted_per_pass() -> None:
    # 15 rows in 7 passes and 64 pixels are 79 bytes
    assert untrusted.has_too_few_rows(png(8, is_interlaced=True))
    assert not untrusted.has_too_few_rows(png(9, is_interlaced=True))


@pytest.mark.parametrize(
    ("data", "is_short"),
    [
        (b"\xff\xd8\xff\xe0 pixels", True),
        (b"\xff\xd8\xff\xe0 pixels\xff\xd9", False),
        (b"\xff\xd8\xff\xe0 pixels\xff\xd9" + bytes(4094), False),
        (b"\xff\xd8\xff\xe0 pixels\xff\xd9" + bytes(4096), True),
        (b"RIFF\x08\0\0\0WEBP1234", False),
        (b"RIFF\x08\0\0\0WEBP123", True),
        (b"\x89PNG\r\n\x1a\n", False),
        (b"", False),
    ],
)
def test_truncated_jpeg_and_webp_are_detected(data: bytes, is_short: bool) -> None:
    assert untrusted.is_cut_short(io.BytesIO(data)) == is_short


@pytest.mark.parametrize(
    ("kind", "count", "is_oversized"), [(4, 1 << 20, False), (4, (1 << 20) + 1, True), (7, 1 << 30, False)]
)
def test_tiff_tag_with_over_a_million_values_is_detected(kind: int, count: int, is_oversized: bool) -> None:
    file = io.BytesIO(b"II*\0" + struct.pack("<IH", 8, 1) + struct.pack("<HHII", 273, kind, count, 8) + bytes(4))
    assert untrusted.has_oversized_tag(file) == is_oversized
