"""The format image-folder: the files that become samples, and their captions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mezzotint.data.files.listing import walk
from mezzotint.data.formats.image_folder import FORMAT
from mezzotint.stages import Sample
from support.data_sets import captions_of, put, read, skipped_of


def test_every_image_below_the_folder_is_a_sample(tmp_path: Path) -> None:
    put(tmp_path, "b.png", "a.JPG", "deep/er/c.webp", ".hidden.png", ".git/d.png", "notes.md", "e.heic")
    put(tmp_path, "b.txt", "a.txt", "deep/er/c.caption", text="a thing\n")
    samples = [item for item in read(tmp_path, prefix="3/", repeats=1.5) if isinstance(item, Sample)]
    assert [sample.key for sample in samples] == ["3/a.JPG", "3/b.png", "3/deep/er/c.webp"]
    assert [sample.media for sample in samples] == [tmp_path / sample.key[2:] for sample in samples]
    assert {sample.captions for sample in samples} == {("a thing",)}
    assert {sample.repeats for sample in samples} == {1.5}
    assert walk(tmp_path, FORMAT.suffixes).unknown == {".md": 1, ".heic": 1}


HARD_NAMES = [
    "two words.png",
    "line\nbreak.png",
    "'single' \"double\".png",
    "<b>&amp;.png",
    "\x1b[31mred.png",
    "é.png",
    "e\u0301.png",
    "图.png",
    "x" * 250 + ".png",
    "-rf.png",
    "\udcff\udcfe.png",  # bytes that are not UTF-8
]


@pytest.mark.parametrize("name", HARD_NAMES)
def test_unusual_file_names_are_samples(tmp_path: Path, name: str) -> None:
    put(tmp_path, name)
    (tmp_path / name).with_suffix(".txt").write_text("hello")
    assert captions_of(read(tmp_path)) == {name: ("hello",)}


def test_only_regular_files_inside_the_folder_are_samples(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(root, "real.png", "sub/inner.png")
    put(tmp_path, "outside.png", "elsewhere/out.png")
    os.mkfifo(root / "pipe.png")
    (root / "folder.png").mkdir()
    (root / "loop.png").symlink_to(root / "loop.png")
    (root / "nowhere.png").symlink_to(root / "gone.png")
    (root / "outward.png").symlink_to(tmp_path / "outside.png")
    (root / "outward").symlink_to(tmp_path / "elsewhere")
    (root / "sub" / "up").symlink_to(root)
    (root / "inward.png").symlink_to("sub/inner.png")
    assert set(captions_of(read(root, captions={"missing": "empty"}))) == {"real.png", "sub/inner.png", "inward.png"}
    reasons = skipped_of(read(root, captions={"missing": "empty"}))
    assert set(reasons) == {"pipe.png", "folder.png", "loop.png", "nowhere.png", "outward.png", "outward", "sub/up"}
    assert reasons["pipe.png"] == "not a regular file"
    assert reasons["outward.png"] == "a link to a path outside the data set's folder"
    assert reasons["loop.png"] == "a broken or circular link"
    assert reasons["sub/up"] == "a circular link to one of its parent folders"
