"""Protobuf messages without schema: they round-trip, and damaged ones are reported with the offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.weights.files.protobuf import Damaged, Window, field, values, varint


def test_fields_round_trip() -> None:
    message = varint(1 << 3) + varint(300) + field(2, b"text") + varint(3 << 3 | 5) + b"\0\0\x80\x3f"
    assert list(values(message)) == [(1, 300), (2, b"text"), (3, 1.0)]


@pytest.mark.parametrize("number", [0, 1, 127, 128, 2**32, 2**63 - 1])
def test_varints_use_seven_bits_per_byte(number: int) -> None:
    written = varint(number)
    assert len(written) == max(1, -(-number.bit_length() // 7))
    assert Window(written, len(written)).varint(0, len(written)) == (number, len(written))


@pytest.mark.parametrize(
    ("message", "reason", "offset"),
    [
        (field(1, b"text")[:-1], "1 bytes are missing: the copy or download was cut short", 1),
        (b"\x80" * 11, "a number does not end", 0),
        (varint(1 << 3 | 3), "a field of the unknown kind 3", 0),
        (varint(1 << 3 | 5) + b"\0\0", "cut short", 0),
    ],
)
def test_damaged_message_is_reported_with_its_offset(message: bytes, reason: str, offset: int) -> None:
    with pytest.raises(Damaged, match=reason) as caught:
        list(values(message))
    assert caught.value.offset == offset


def test_large_fields_are_skipped_without_reading_them(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(field(1, bytes(100_000)) + field(2, b"end"))
    with path.open("rb") as file:
        window = Window(file.fileno(), path.stat().st_size)
        fields = list(window.fields(0, window.size))
        assert [(one.number, one.end - one.start) for one in fields] == [(1, 100_000), (2, 3)]
        assert window.take(fields[1].start, 3) == b"end"
