"""Texts of captions: lines, unreadable bytes, missing captions."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.data.formats.base import Skipped
from support.data_sets import captions_of, put, read, skipped_of


@pytest.mark.parametrize(
    ("data", "joined", "chosen"),
    [
        (b"one", ("one",), ("one",)),
        (b"\xef\xbb\xbfmarked\n", ("marked",), ("marked",)),
        (b"  a \r\n\r\n b\rc\n", ("a b c",), ("a", "b", "c")),
        (b"", ("",), ("",)),
        (b"\n \n", ("",), ("",)),
        ("\u2028 <lora:x> {a|b} \x1b[0m".encode(), ("<lora:x> {a|b} \x1b[0m",), ("<lora:x> {a|b} \x1b[0m",)),
    ],
)
def test_caption_file_lines_are_joined_or_chosen_from(
    tmp_path: Path, data: bytes, joined: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    put(tmp_path, "a.png")
    put(tmp_path, "a.txt", text=data)
    assert captions_of(read(tmp_path, captions={"lines": "join"})) == {"a.png": joined}
    assert captions_of(read(tmp_path, captions={"lines": "random"})) == {"a.png": chosen}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"caf\xe9", "not UTF-8 at byte 3"),
        (b"a\0b", "contains NUL"),
        ("a b".encode("utf-16"), "contains NUL"),
        (b"\xed\xa0\x80", "not UTF-8"),
        (b"x" * 1_000_001, "more than 1,000,000 bytes"),
    ],
)
def test_images_with_unreadable_captions_are_skipped(tmp_path: Path, data: bytes, reason: str) -> None:
    put(tmp_path, "a.png", "b.png")
    put(tmp_path, "a.txt", text=data)
    put(tmp_path, "b.txt", text="fine")
    assert captions_of(read(tmp_path)) == {"b.png": ("fine",)}
    assert reason in skipped_of(read(tmp_path))["a.png"]


def test_missing_captions_may_be_skipped_or_empty(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png")
    put(tmp_path, "a.txt", text="here")
    assert captions_of(read(tmp_path, captions={"missing": "empty"})) == {"a.png": ("here",), "b.png": ("",)}
    left = [item for item in read(tmp_path, captions={"missing": "skip"}) if isinstance(item, Skipped)]
    assert left == [Skipped("b.png", "no caption", is_wanted=True)]
