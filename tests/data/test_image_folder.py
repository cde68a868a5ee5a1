"""The format image-folder and the listing below it: which files become samples, with which captions."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.data.files.listing import walk
from mezzotint.data.formats.base import Skipped, Source
from mezzotint.data.formats.image_folder import FORMAT
from mezzotint.errors import DatasetError
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Sample


def put(root: Path, *names: str, text: str | bytes = b"x") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)


def read(root: Path, prefix: str = "", **captions: Any) -> list[Sample | Skipped]:
    settings = DataSettings.model_validate({"path": [root], "captions": captions})
    return list(FORMAT.read_samples(Source(root, settings, 1.5, walk(root, FORMAT.suffixes), prefix)))


def captions_of(root: Path, **captions: Any) -> dict[str, tuple[str, ...]]:
    return {item.key: item.captions for item in read(root, **captions) if isinstance(item, Sample)}


def skipped_of(root: Path, **captions: Any) -> dict[str, str]:
    return {item.path: item.reason for item in read(root, **captions) if isinstance(item, Skipped)}


def test_every_picture_below_the_folder_is_a_sample(tmp_path: Path) -> None:
    put(tmp_path, "b.png", "a.JPG", "deep/er/c.webp", ".hidden.png", ".git/d.png", "notes.md", "e.heic")
    put(tmp_path, "b.txt", "a.txt", "deep/er/c.caption", text="a thing\n")
    samples = [item for item in read(tmp_path, prefix="3/") if isinstance(item, Sample)]
    assert [sample.key for sample in samples] == ["3/a.JPG", "3/b.png", "3/deep/er/c.webp"]
    assert [sample.media for sample in samples] == [tmp_path / sample.key[2:] for sample in samples]
    assert {sample.captions for sample in samples} == {("a thing",)}
    assert {sample.repeats for sample in samples} == {1.5}
    assert walk(tmp_path, FORMAT.suffixes).unknown == {".md": 1, ".heic": 1}


def test_order_depends_on_names_alone(tmp_path: Path) -> None:
    names = [f"{folder}/{i}.png" for folder in "zyx" for i in (10, 9, 2, 1)]
    for root, order in ((tmp_path / "one", names), (tmp_path / "two", names[::-1])):
        put(root, *order)
    one, two = (walk(tmp_path / name, FORMAT.suffixes).names for name in ("one", "two"))
    assert one == two == sorted(names)


def test_digest_of_a_listing_changes_with_name_size_and_time(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png")
    seen = [walk(tmp_path, FORMAT.suffixes).digest()]
    assert walk(tmp_path, FORMAT.suffixes).digest() == seen[0]
    changes: list[Callable[[], object]] = [
        lambda: put(tmp_path, "a.png", text="xy"),
        lambda: os.utime(tmp_path / "b.png", ns=(1, 1)),
        lambda: os.rename(tmp_path / "b.png", tmp_path / "c.png"),
        lambda: put(tmp_path, "other.md"),
    ]
    for change in changes:
        change()
        seen.append(walk(tmp_path, FORMAT.suffixes).digest())
    assert len(set(seen)) == 5


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
def test_hard_names_are_samples_like_others(tmp_path: Path, name: str) -> None:
    put(tmp_path, name)
    (tmp_path / name).with_suffix(".txt").write_text("hello")
    assert captions_of(tmp_path) == {name: ("hello",)}


def test_nothing_but_regular_files_inside_the_folder_counts(tmp_path: Path) -> None:
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
    assert set(captions_of(root, missing="empty")) == {"real.png", "sub/inner.png", "inward.png"}
    reasons = skipped_of(root, missing="empty")
    assert set(reasons) == {"pipe.png", "folder.png", "loop.png", "nowhere.png", "outward.png", "outward", "sub/up"}
    assert reasons["pipe.png"] == "not a regular file"
    assert reasons["outward.png"] == "a link that leads out of the data set's folder"
    assert reasons["loop.png"] == "a link that leads nowhere or in a circle"


def test_links_between_folders_end(tmp_path: Path) -> None:
    put(tmp_path, "a/1.png", "b/2.png")
    (tmp_path / "a" / "to_b").symlink_to(tmp_path / "b")
    (tmp_path / "b" / "to_a").symlink_to(tmp_path / "a")
    assert walk(tmp_path, FORMAT.suffixes).names == ["a/1.png", "a/to_b/2.png", "b/2.png", "b/to_a/1.png"]
    assert len(walk(tmp_path, FORMAT.suffixes).refused) == 2


@pytest.mark.parametrize("kind", ["missing", "file", "loop"])
def test_a_root_that_is_no_folder_is_named(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "root"
    if kind == "file":
        root.write_text("x")
    if kind == "loop":
        root.symlink_to(root)
    with pytest.raises(DatasetError, match=r"data\.path") as found:
        walk(root, FORMAT.suffixes)
    assert found.value.code == "E1201"
    assert str(root) in found.value.message


# --- captions -----------------------------------------------------------------------------------------------


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
def test_lines_of_a_caption_file(tmp_path: Path, data: bytes, joined: tuple[str, ...], chosen: tuple[str, ...]) -> None:
    put(tmp_path, "a.png")
    put(tmp_path, "a.txt", text=data)
    assert captions_of(tmp_path, lines="join") == {"a.png": joined}
    assert captions_of(tmp_path, lines="choose") == {"a.png": chosen}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"caf\xe9", "not UTF-8 at byte 3"),
        (b"a\0b", "holds NUL"),
        ("a b".encode("utf-16"), "holds NUL"),
        (b"\xed\xa0\x80", "not UTF-8"),
        (b"x" * 1_000_001, "more than 1,000,000 bytes"),
    ],
)
def test_unreadable_captions_leave_their_picture_out(tmp_path: Path, data: bytes, reason: str) -> None:
    put(tmp_path, "a.png", "b.png")
    put(tmp_path, "a.txt", text=data)
    put(tmp_path, "b.txt", text="fine")
    assert captions_of(tmp_path) == {"b.png": ("fine",)}
    assert reason in skipped_of(tmp_path)["a.png"]


def test_two_equal_sidecars_are_fine_and_two_that_differ_an_error(tmp_path: Path) -> None:
    put(tmp_path, "a.png")
    put(tmp_path, "a.txt", text="same\n")
    put(tmp_path, "a.caption", text="same")
    assert captions_of(tmp_path) == {"a.png": ("same",)}
    put(tmp_path, "a.caption", text="other")
    with pytest.raises(DatasetError) as found:
        read(tmp_path)
    assert found.value.code == "E1204"
    assert "a.txt" in found.value.message
    assert "a.caption" in found.value.message


def test_missing_captions_name_the_first_ten(tmp_path: Path) -> None:
    put(tmp_path, *(f"{i:02}.png" for i in range(13)))
    put(tmp_path, "00.txt", text="here")
    with pytest.raises(DatasetError) as found:
        read(tmp_path)
    assert found.value.code == "E1203"
    assert "12 pictures have no caption: 01.png, 02.png" in found.value.message
    assert "10.png and 2 more; add 01.txt" in found.value.message
    assert "11.png" not in found.value.message


def test_a_table_among_pictures_without_captions_is_pointed_at(tmp_path: Path) -> None:
    put(tmp_path, "a.png")
    with pytest.raises(DatasetError) as found:
        read(tmp_path)
    assert "data.format" not in found.value.message
    put(tmp_path, "metadata.csv", text="file_name,text")
    with pytest.raises(
        DatasetError, match=r"metadata\.csv lies there, which data\.format=metadata reads; otherwise add"
    ):
        read(tmp_path)


def test_missing_captions_may_be_skipped_or_empty(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png")
    put(tmp_path, "a.txt", text="here")
    assert captions_of(tmp_path, missing="empty") == {"a.png": ("here",), "b.png": ("",)}
    left = [item for item in read(tmp_path, missing="skip") if isinstance(item, Skipped)]
    assert left == [Skipped("b.png", "no caption", is_wanted=True)]


def test_captions_from_names(tmp_path: Path) -> None:
    put(tmp_path, "a_red__house.v2.png", "\udcff.png")
    put(tmp_path, "a_red__house.v2.txt", text="sidecar")
    assert captions_of(tmp_path, source="filename") == {"a_red__house.v2.png": ("a red house.v2",)}
    assert "its name is not UTF-8" in skipped_of(tmp_path, source="filename")["\udcff.png"]
    assert captions_of(tmp_path, source="either") == {"a_red__house.v2.png": ("sidecar",)}
