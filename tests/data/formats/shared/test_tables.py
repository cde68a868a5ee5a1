"""Rows of text tables: columns, variants of CSV, unreadable tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.data_sets import captions_of, put, skipped_of
from support.tables import error_of, read, row, table


def test_invalid_utf8_affects_only_its_row(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png", "\udcff.png")
    lines = [b'{"file_name": "a.png", "text": "caf\xe9"}', b'{"file_name": "b.png", "text": "fine"}']
    (tmp_path / "metadata.jsonl").write_bytes(
        b"\xef\xbb\xbf" + b"\r\n".join([*lines, b'{"file_name": "\xff.png", "text": "named in bytes"}'])
    )
    items = read(tmp_path)
    assert captions_of(items) == {"b.png": ("fine",), "\udcff.png": ("named in bytes",)}
    assert skipped_of(items, is_wanted=False) == {
        "metadata.jsonl:1": "its caption is not UTF-8, or contains half a surrogate pair"
    }


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_columns_are_found_by_name(tmp_path: Path, kind: str) -> None:
    put(tmp_path, "a.png", "b.png")
    if kind == "jsonl":
        table(tmp_path, {"file_name": "a.png", "mask_file_name": "b.png", "text": "one", "prompt": "two"})
    else:
        (tmp_path / "metadata.csv").write_text("file_name,mask_file_name,text,prompt\na.png,b.png,one,two\n")
    assert captions_of(read(tmp_path)) == {"a.png": ("one",)}
    assert captions_of(read(tmp_path, columns={"caption": "prompt"})) == {"a.png": ("two",)}
    assert captions_of(read(tmp_path, columns={"image": "mask"})) == {"b.png": ("one",)}
    assert captions_of(read(tmp_path, columns={"image": "mask_file_name"})) == {"b.png": ("one",)}


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
@pytest.mark.parametrize("which", ["image", "caption"])
def test_error_for_a_wrong_column_lists_the_columns(tmp_path: Path, kind: str, which: str) -> None:
    put(tmp_path, "a.png")
    if kind == "jsonl":
        table(tmp_path, row("a.png"), row("a.png") | {"extra": 1})
    else:
        (tmp_path / "metadata.csv").write_text("file_name,text,extra\na.png,a thing,1\n")
    error = error_of(tmp_path, columns={which: "wrong"})
    assert error.code == "E1212"
    assert f"metadata.{kind}: no column 'wrong" in error.message
    assert all(name in error.message for name in ("'file_name'", "'text'", "'extra'"))
    assert f"set data.columns.{which}" in error.message


@pytest.mark.parametrize(
    ("text", "captions"),
    [
        ("file_name,text\na.png,plain\n", ("plain",)),
        ("file_name,text\r\na.png,plain\r\n", ("plain",)),
        ("\ufefffile_name,text\na.png,plain", ("plain",)),
        ('file_name,text\na.png,"one, two"\n', ("one, two",)),
        ('file_name,text\na.png, "one, two"\n', ("one, two",)),
        ('file_name,text\na.png,"a ""quoted"" word"\n', ('a "quoted" word',)),
        ('file_name,text\na.png,"two\nlines"\n', ("two lines",)),
        ("file_name;text\na.png;one, two\n", ("one, two",)),
        ("file_name\ttext\na.png\tone, two\n", ("one, two",)),
        ('"file_name","text"\n"a.png","x"\n', ("x",)),
        ("text, file_name\nx, a.png\n", ("x",)),
        ("file_name,text\n\na.png,x\n\n", ("x",)),
        ("file_name,text\na.png,NaN\n", ("NaN",)),
        ("file_name,text\na.png,5\n", ("5",)),
    ],
)
def test_variants_of_csv_are_read(tmp_path: Path, text: str, captions: tuple[str, ...]) -> None:
    put(tmp_path, "a.png")
    (tmp_path / "metadata.csv").write_bytes(text.encode())
    assert captions_of(read(tmp_path)) == {"a.png": captions}


def test_rows_of_csv_are_named_by_their_first_line(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png")
    lines = [
        "file_name,text",
        'a.png,"two',
        'lines"',
        "b.png,one, two",
        "gone.png,x",
        "b.png",
        ",x",
        "b.png,",
        "b.png,y",
    ]
    (tmp_path / "metadata.csv").write_text("\n".join(lines))
    items = read(tmp_path, captions={"missing": "skip"})
    assert captions_of(items) == {"a.png": ("two lines",), "b.png": ("y",)}
    reasons = skipped_of(items, is_wanted=False)
    assert set(reasons) == {f"metadata.csv:{i}" for i in (4, 5, 6, 7)}
    assert reasons["metadata.csv:4"].startswith("3 fields, but the header has 2")
    assert reasons["metadata.csv:6"].startswith("1 field, but")
    assert reasons["metadata.csv:7"] == "no image"
    assert skipped_of(items, is_wanted=True) == {"metadata.csv:8": "no caption"}


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b'file_name,text\na.png,x\nb.png,"open\nc.png,y\n', "E1211", "the record that starts in line 3"),
        (b'file_name,text\na.png,"x" y\n', "E1211", "line 2"),
        (b"file_name,text\na.png," + b"x" * 200_000, "E1211", "line 2: field larger"),
        ("file_name,text\n".encode("utf-16"), "E1211", "UTF-16"),
        (b"version https://git-lfs.github.com/spec/v1\noid x", "E1211", "Git LFS pointer"),
        (b"", "E1212", "it is empty"),
        (b"file_name,text,text\na.png,x,y\n", "E1212", "'text' exists twice"),
    ],
)
def test_unreadable_csv_is_refused_with_the_reason(tmp_path: Path, data: bytes, code: str, words: str) -> None:
    put(tmp_path, "a.png")
    (tmp_path / "metadata.csv").write_bytes(data)
    error = error_of(tmp_path)
    assert (error.code, words in error.message) == (code, True), error.message
    assert "metadata.csv" in error.message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'[\n{"file_name": "a.png"}\n]', "is a JSON array; write one object per line"),
        (b'{"file_name": "a.png", "text": "' + b"x" * (17 << 20), "line 1 has more than"),
        ('{"file_name": "a.png"}'.encode("utf-16"), "UTF-16"),
        (b"version https://git-lfs.github.com/spec/v1\noid x", "Git LFS pointer"),
    ],
)
def test_unreadable_json_lines_are_refused_with_the_reason(tmp_path: Path, data: bytes, words: str) -> None:
    put(tmp_path, "a.png")
    (tmp_path / "metadata.jsonl").write_bytes(data)
    error = error_of(tmp_path)
    assert error.code == "E1211"
    assert words in error.message


@pytest.mark.parametrize("name", ["metadata.jsonl", "metadata.csv"])
def test_line_of_a_gigabyte_is_refused_without_reading_it(tmp_path: Path, name: str) -> None:
    put(tmp_path, "a.png")
    with (tmp_path / name).open("wb") as file:
        file.write(b"file_name,text\na.png," if name.endswith("csv") else b'{"file_name": "a.png", "text": "')
        file.truncate(1 << 30)
    error = error_of(tmp_path)
    assert (error.code, "has more than 16,777,216 characters" in error.message) == ("E1211", True)
