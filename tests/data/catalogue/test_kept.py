"""What was worked out of an index lies in its folder, and is believed only where it is whole."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from mezzotint.data.catalogue import kept

CONTENT = os.urandom(3 << 20)


def read(place: Path) -> bytes | None:
    out = io.BytesIO()
    return out.getvalue() if kept.copy_out(place, out) else None


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = kept.place(tmp_path, "report", (1, "settings"))
    kept.keep(io.BytesIO(CONTENT), place)
    return place


def test_what_is_kept_comes_back(place: Path) -> None:
    assert read(place) == CONTENT
    assert [path.name for path in place.parent.iterdir()] == [place.name]


@pytest.mark.parametrize("at", [0, 64, 1 << 20, -1])
def test_a_bit_that_changed_is_noticed(place: Path, at: int) -> None:
    content = bytearray(place.read_bytes())
    content[at] ^= 1
    place.write_bytes(content)
    assert read(place) is None


def test_what_is_cut_or_empty_or_no_file_is_not_there(place: Path) -> None:
    place.write_bytes(place.read_bytes()[:-1])
    assert read(place) is None
    place.write_bytes(b"")
    assert read(place) is None
    place.unlink()
    assert read(place) is None
    os.mkfifo(place)
    assert read(place) is None


def test_one_of_each_word_is_kept(place: Path) -> None:
    other, shards = kept.place(place.parent, "report", (2, "settings")), kept.place(place.parent, "shards", ())
    kept.keep(io.BytesIO(b"shards"), shards)
    kept.keep(io.BytesIO(b"other"), other)
    assert set(place.parent.iterdir()) == {other, shards}
    assert read(other) == b"other"
    assert read(shards) == b"shards"


def test_what_cannot_be_written_is_not_kept(tmp_path: Path) -> None:
    kept.keep(io.BytesIO(CONTENT), kept.place(tmp_path / "gone", "report", ()))
    assert list(tmp_path.iterdir()) == []
