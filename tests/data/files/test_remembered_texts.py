"""Only changed caption files are read again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mezzotint import outside
from mezzotint.data.catalogue.catalogue import build
from mezzotint.data.files.remembered_texts import RememberedTexts
from support.data_sets import small_of as settings_of

Opens = Callable[[], list[str]]


@pytest.fixture
def opens(monkeypatch: pytest.MonkeyPatch) -> Opens:
    """Returns the names of the caption files that were opened since the last call."""
    names: list[str] = []
    original = outside.read_bytes

    def read_bytes(path: Path, *, limit: int, within: Path | None = None) -> bytes:
        names.extend([path.name] if path.suffix == ".txt" else [])
        return original(path, limit=limit, within=within)

    def taken() -> list[str]:
        some, names[:] = sorted(names), []
        return some

    monkeypatch.setattr(outside, "read_bytes", read_bytes)
    return taken


def test_only_changed_caption_files_are_read(painted: Path, index: Path, opens: Opens) -> None:
    first = build(settings_of(painted), index)
    assert opens() == [f"00{number}.txt" for number in range(6)]
    (painted / "003.txt").write_text("another caption")
    second = build(settings_of(painted), index)
    assert opens() == ["003.txt"]
    assert [second.captions(row) for row in range(6)] == [
        ("another caption",) if row == 3 else first.captions(row) for row in range(6)
    ]
    os.utime(painted / "000.png")
    build(settings_of(painted), index)
    assert opens() == [], "a changed image is not a changed caption"
    (painted / "005.txt").unlink()
    (painted / "005.png").unlink()
    assert len(build(settings_of(painted), index)) == 5
    assert opens() == []


def test_caption_settings_can_change_without_reading_files(painted: Path, index: Path, opens: Opens) -> None:
    (painted / "000.txt").write_text("one\ntwo\n")
    build(settings_of(painted, captions={"prefix": "first, "}), index)
    opens()
    changed = build(settings_of(painted, captions={"lines": "random"}), index)
    assert changed.captions(0) == ("one", "two")
    assert opens() == []


def test_file_with_the_same_size_and_other_times_is_read(painted: Path, index: Path, opens: Opens) -> None:
    build(settings_of(painted), index)
    opens()
    (painted / "001.txt").write_text("IMAGE 1")
    os.utime(painted / "001.txt", ns=(0, 0))
    assert build(settings_of(painted), index).captions(1) == ("IMAGE 1",)
    assert opens() == ["001.txt"]


def test_damaged_texts_and_moved_folders_are_read_again(
    painted: Path, index: Path, opens: Opens, tmp_path: Path
) -> None:
    build(settings_of(painted), index)
    [texts] = index.glob("*/texts/text.npy")
    texts.write_bytes(texts.read_bytes()[:-1] + b"?")
    opens()
    (painted / "000.txt").write_text("other")
    assert build(settings_of(painted), index).captions(5) == ("image 5",)
    assert len(opens()) == 6
    build(settings_of(painted.rename(tmp_path / "moved")), index)
    assert len(opens()) == 6


def test_unreadable_caption_is_tried_again(painted: Path, index: Path, opens: Opens) -> None:
    (painted / "002.txt").write_bytes(b"\xff\xfe")
    assert [path for path, _ in build(settings_of(painted), index).report.skipped] == ["002.png"]
    opens()
    (painted / "004.txt").write_text("other")
    assert len(build(settings_of(painted), index)) == 5
    assert opens() == ["002.txt", "004.txt"]


def test_captions_are_read_in_threads(painted: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mezzotint.data.formats.shared.sidecars.CHUNK", 2)
    original, together = outside.read_bytes, threading.Barrier(3, timeout=60)

    def read_bytes(path: Path, *, limit: int, within: Path | None = None) -> bytes:
        if path.suffix == ".txt":
            together.wait()  # fails unless three files are read at a time
        return original(path, limit=limit, within=within)

    monkeypatch.setattr(outside, "read_bytes", read_bytes)
    data_set = build(settings_of(painted), index)
    assert [data_set.captions(row) for row in range(6)] == [(f"image {row}",) for row in range(6)]


def test_nothing_is_stored_without_a_folder(tmp_path: Path) -> None:
    texts = RememberedTexts().files(tmp_path, ["a.txt"], np.zeros((1, 3), np.int64))
    assert texts.text("a.txt", lambda: "words") == "words"
