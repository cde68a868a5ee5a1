"""Rows that become samples, and the reports about the others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mezzotint.data.formats.base import Noted
from mezzotint.stages import Sample
from support.data_sets import captions_of, put, skipped_of
from support.tables import error_of, read, row, table


def test_every_row_is_a_sample_named_by_its_image(tmp_path: Path) -> None:
    put(tmp_path, "b.png", "deep/er/a.JPG", "deep/c.png")
    table(tmp_path, row("b.png", "one"), row("./deep//er/a.JPG", "two"))
    table(tmp_path, row("c.png", "three"), name="deep/metadata.jsonl")
    items = read(tmp_path, prefix="1/")
    samples = {item.key: item for item in items if isinstance(item, Sample)}
    assert captions_of(items) == {"1/b.png": ("one",), "1/deep/er/a.JPG": ("two",), "1/deep/c.png": ("three",)}
    assert samples["1/deep/er/a.JPG"].media == tmp_path / "deep/er/a.JPG"
    assert samples["1/b.png"].repeats == 1.5
    assert len(items) == 3


@pytest.mark.parametrize(
    ("value", "joined", "chosen"),
    [
        ("plain", ("plain",), ("plain",)),
        (["one", "two"], ("one", "two"), ("one", "two")),
        (["one", None, "one"], ("one", "one"), ("one", "one")),
        ("two\r\n lines \n", ("two lines",), ("two", "lines")),
        (["a\nb", "c"], ("a b", "c"), ("a", "b", "c")),
        ("", ("",), ("",)),
        ("  ", ("",), ("",)),
        ("<lora:x> {a|b} \x1b[0m", ("<lora:x> {a|b} \x1b[0m",), ("<lora:x> {a|b} \x1b[0m",)),
    ],
)
def test_captions_are_a_text_or_a_list(
    tmp_path: Path, value: Any, joined: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    put(tmp_path, "a.png")
    table(tmp_path, row("a.png", value))
    assert captions_of(read(tmp_path)) == {"a.png": joined}
    assert captions_of(read(tmp_path, captions={"lines": "random"})) == {"a.png": chosen}


HARD_LINES = [
    ("not json", "not JSON: Expecting value"),
    ('{"file_name": "a.png"', "not JSON"),
    ('"a.png"', "a text, not an object"),
    ('["a.png", "x"]', "a list, not an object"),
    ("[" * 100_000, "nested more than 200 levels deep"),
    ('{"file_name": "a.png", "text": "x", "text": "y"}', "the key 'text' occurs twice"),
    ('{"text": "x"}', "no image"),
    ('{"file_name": null, "text": "x"}', "no image"),
    ('{"file_name": NaN, "text": "x"}', "no image"),
    ('{"file_name": 5, "text": "x"}', "its image is a number (5), not a file name"),
    ('{"file_name": true, "text": "x"}', "its image is true or false"),
    ('{"file_name": ["a.png"], "text": "x"}', "its image is a list"),
    ('{"file_name": "a.png", "text": 5}', "its caption is a number (5), not a text"),
    ('{"file_name": "a.png", "text": false}', "its caption is true or false"),
    ('{"file_name": "a.png", "text": {"en": "x"}}', "its caption is an object"),
    ('{"file_name": "a.png", "text": ["x", 5]}', "among its captions is a number (5)"),
    ('{"file_name": "a.png", "text": [["x"]]}', "among its captions is a list"),
    ('{"file_name": "a.png", "text": "a\\u0000b"}', "its caption contains NUL"),
    ('{"file_name": "a.png", "text": "a\\ud800b"}', "half a surrogate pair"),
    ('{"file_name": "gone.png", "text": "x"}', "'gone.png': no such file"),
    ('{"file_name": "", "text": "x"}', "no extension is not an extension of images"),
    ('{"file_name": "notes.heic", "text": "x"}', "'.heic' is not an extension of images"),
    ('{"file_name": "deep\\\\a.png", "text": "x"}', "use / in names"),
    ('{"file_name": "a\\u0000.png", "text": "x"}', "no such file"),
    ('{"file_name": "a.png\\u001b[31m", "text": "x"}', "\\x1b[31m"),
]


@pytest.mark.parametrize(("line", "reason"), HARD_LINES)
def test_unusable_row_is_reported_with_its_line(tmp_path: Path, line: str, reason: str) -> None:
    put(tmp_path, "a.png", "b.png", "notes.heic")
    table(tmp_path, row("b.png", "fine"), "", line)
    items = read(tmp_path)
    assert captions_of(items) == {"b.png": ("fine",)}
    reasons = skipped_of(items, is_wanted=False)
    assert list(reasons) == ["metadata.jsonl:3"]
    assert reason in reasons["metadata.jsonl:3"]
    assert "\x1b" not in reasons["metadata.jsonl:3"]


def test_images_without_a_row_are_left_out_and_reported(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png", "deep/c.png")
    table(tmp_path, row("a.png"))
    items = read(tmp_path)
    assert skipped_of(items, is_wanted=False) == {}
    unnamed = dict.fromkeys(("b.png", "deep/c.png"), "not named in any row of a table")
    assert skipped_of(items, is_wanted=True) == unnamed


def test_repeated_images_get_numbered_keys(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png")
    table(tmp_path, row("a.png", "one"), row("b.png"), row("a.png", "two"), row("./a.png", "one"), row("a.png", "six"))
    items = read(tmp_path)
    assert captions_of(items) == {"a.png": ("one",), "b.png": ("a thing",), "a.png#2": ("two",), "a.png#3": ("six",)}
    assert {item.media.name for item in items if isinstance(item, Sample) and "#" in item.key} == {"a.png"}
    assert skipped_of(items, is_wanted=False) == {"metadata.jsonl:4": "the same image and caption as metadata.jsonl:1"}
    (note,) = [item for item in items if isinstance(item, Noted)]
    assert note.path == "metadata.jsonl"
    assert "2 rows name images of an earlier row" in note.reason
    assert "metadata.jsonl:3 (a.png#2), metadata.jsonl:5 (a.png#3)" in note.reason


def test_missing_captions_are_an_error_skipped_or_empty(tmp_path: Path) -> None:
    put(tmp_path, *(f"{i:02}.png" for i in range(14)))
    absent: list[Any] = [{"file_name": "01.png"}, row("02.png", None), row("03.png", float("nan")), row("04.png", [])]
    table(tmp_path, row("00.png", "here"), *absent, *(row(f"{i:02}.png", [None]) for i in range(5, 14)))
    error = error_of(tmp_path)
    assert error.code == "E1203"
    assert "13 rows have no caption: metadata.jsonl:2, metadata.jsonl:3" in error.message
    assert "metadata.jsonl:11 and 3 more" in error.message
    assert "metadata.jsonl:12" not in error.message
    empty = captions_of(read(tmp_path, captions={"missing": "empty"}))
    assert len(empty) == 14
    assert empty["13.png"] == ("",)
    skipped = read(tmp_path, captions={"missing": "skip"})
    assert captions_of(skipped) == {"00.png": ("here",)}
    assert set(skipped_of(skipped, is_wanted=True).values()) == {"no caption"}
    assert len(skipped_of(skipped, is_wanted=True)) == 13


OUTSIDE = [
    "/etc/passwd.png",
    "../secret.png",
    "deep/../../secret.png",
    "deep/../a.png",
    "..\\secret.png",
    "C:\\images\\a.png",
    "c:/images/a.png",
    "\\\\server\\share\\a.png",
    "https://example.org/a.png",
    "FILE:///etc/a.png",
    "file:a.png",
    "zip://a.png::b.zip",
    "data:image/png;base64,AAAA",
]


@pytest.mark.parametrize(("name", "kind"), [*((name, "jsonl") for name in OUTSIDE), (OUTSIDE[1], "csv")])
def test_row_that_leaves_the_folder_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    put(tmp_path, "secret.png", "root/a.png", "root/deep/b.png")
    if kind == "jsonl":
        table(tmp_path / "root", row("a.png"), row(name))
    else:
        (tmp_path / "root" / "metadata.csv").write_text(f'file_name,text\na.png,x\n"{name}",y\n')
    error = error_of(tmp_path / "root")
    assert error.code == "E1213"
    assert (
        f"a row names a file outside the folder of the table: metadata.{kind}:{2 + (kind == 'csv')} (" in error.message
    )
    assert ascii(name) in error.message


def test_rows_that_leave_the_folder_are_counted(tmp_path: Path) -> None:
    table(tmp_path, *(row(f"/{i}.png") for i in range(12)))
    assert "12 rows name a file outside" in error_of(tmp_path).message
    assert "metadata.jsonl:10 ('/9.png') and 2 more" in error_of(tmp_path).message


def test_nested_table_is_limited_to_its_folder(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "deep/b.png")
    table(tmp_path, row("a.png"), row("b.png"), name="deep/metadata.jsonl")
    items = read(tmp_path)
    assert captions_of(items) == {"deep/b.png": ("a thing",)}
    assert "no such file below" in skipped_of(items, is_wanted=False)["deep/metadata.jsonl:1"]


def test_links_are_followed_only_inside_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    put(tmp_path, "outside.png", "elsewhere/c.png")
    put(root, "sub/inner.png", ".hidden.png")
    (root / "outward.png").symlink_to(tmp_path / "outside.png")
    (root / "far").symlink_to(tmp_path / "elsewhere")
    (root / "inward.png").symlink_to("sub/inner.png")
    os.mkfifo(root / "pipe.png")
    names = ("outward.png", "far/c.png", "inward.png", "pipe.png", ".hidden.png")
    table(root, *map(row, names))
    items = read(root)
    assert captions_of(items) == {"inward.png": ("a thing",)}
    reasons = skipped_of(items, is_wanted=False)
    assert "a link to a path outside the data set's folder" in reasons["metadata.jsonl:1"]
    assert "no such file" in reasons["metadata.jsonl:2"]
    assert reasons["far"] == "a link to a path outside the data set's folder"
    assert "not a regular file" in reasons["metadata.jsonl:4"]
    assert "no such file" in reasons["metadata.jsonl:5"]
    assert set(reasons) == {"far", *(f"metadata.jsonl:{i}" for i in (1, 2, 4, 5))}


def test_captions_have_at_most_a_million_bytes(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png")
    table(tmp_path, row("a.png", "x" * 1_000_000), row("b.png", "x" * 1_000_001))
    items = read(tmp_path)
    assert list(captions_of(items)) == ["a.png"]
    assert "more than 1,000,000 bytes" in skipped_of(items, is_wanted=False)["metadata.jsonl:2"]
