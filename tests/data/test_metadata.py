"""The format metadata over text tables: which rows become samples, and what becomes of the others."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.data.formats.base import Noted, Skipped, Source
from mezzotint.data.formats.metadata import list_files, read_samples
from mezzotint.errors import DatasetError, RecipeError
from mezzotint.recipe.reading.read import read_text
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Sample

Item = Sample | Skipped | Noted


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


def table(root: Path, *rows: Any, name: str = "metadata.jsonl") -> None:
    """Lines of JSON; what is text already stands as it is."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))


def row(name: str, text: Any = "a thing") -> dict[str, Any]:
    return {"file_name": name, "text": text}


def read(root: Path, prefix: str = "", **values: Any) -> list[Item]:
    settings = DataSettings.model_validate({"path": [root], "format": "metadata", **values})
    return list(read_samples(Source(root, settings, 1.5, list_files(root, settings), prefix)))


def captions_of(items: Sequence[Item]) -> dict[str, tuple[str, ...]]:
    return {item.key: item.captions for item in items if isinstance(item, Sample)}


def skipped_of(items: Sequence[Item], wanted: bool = False) -> dict[str, str]:
    return {item.path: item.reason for item in items if isinstance(item, Skipped) and item.is_wanted == wanted}


def error_of(root: Path, **values: Any) -> DatasetError:
    with pytest.raises(DatasetError) as found:
        read(root, **values)
    return found.value


# --- rows ---------------------------------------------------------------------------------------------------


def test_every_row_is_a_sample_named_by_its_picture(tmp_path: Path) -> None:
    put(tmp_path, "b.png", "deep/er/a.JPG", "deep/c.png")
    table(tmp_path, row("b.png", "one"), row("./deep//er/a.JPG", "two"))
    table(tmp_path, row("c.png", "three"), name="deep/metadata.jsonl")
    items = read(tmp_path, prefix="1/")
    samples = {item.key: item for item in items if isinstance(item, Sample)}
    assert captions_of(items) == {"1/b.png": ("one",), "1/deep/er/a.JPG": ("two",), "1/deep/c.png": ("three",)}
    assert samples["1/deep/er/a.JPG"].media == tmp_path / "deep/er/a.JPG"
    assert samples["1/b.png"].repeats == 1.5
    assert len(items) == 3


def test_keys_are_those_of_an_image_folder(tmp_path: Path) -> None:
    for name in ("a.png", "deep/b.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (40, 40)).save(tmp_path / name)
        (tmp_path / name).with_suffix(".txt").write_text("hello")
    table(tmp_path, row("a.png", "hello"), row("deep/b.png", "hello"))
    made = [
        build(
            DataSettings(path=(tmp_path,), format=kind, resolution=64),
            tmp_path.parent / f"{tmp_path.name}-index",
        )
        for kind in ("image-folder", "metadata")
    ]
    assert made[0].fingerprint == made[1].fingerprint
    assert [made[1].key(i) for i in range(2)] == ["a.png", "deep/b.png"]


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
def test_captions_are_a_text_or_a_list_to_choose_from(
    tmp_path: Path, value: Any, joined: tuple[str, ...], chosen: tuple[str, ...]
) -> None:
    put(tmp_path, "a.png")
    table(tmp_path, row("a.png", value))
    assert captions_of(read(tmp_path)) == {"a.png": joined}
    assert captions_of(read(tmp_path, captions={"lines": "choose"})) == {"a.png": chosen}


HARD_LINES = [
    ("not json", "not JSON: Expecting value"),
    ('{"file_name": "a.png"', "not JSON"),
    ('"a.png"', "a text, not an object"),
    ('["a.png", "x"]', "a list, not an object"),
    ("[" * 100_000, "nested too deep"),
    ('{"file_name": "a.png", "text": "x", "text": "y"}', "the key 'text' stands twice"),
    ('{"text": "x"}', "no picture"),
    ('{"file_name": null, "text": "x"}', "no picture"),
    ('{"file_name": NaN, "text": "x"}', "no picture"),
    ('{"file_name": 5, "text": "x"}', "its picture is a number (5), not the name of a file"),
    ('{"file_name": true, "text": "x"}', "its picture is true or false"),
    ('{"file_name": ["a.png"], "text": "x"}', "its picture is a list"),
    ('{"file_name": "a.png", "text": 5}', "its caption is a number (5), not a text"),
    ('{"file_name": "a.png", "text": false}', "its caption is true or false"),
    ('{"file_name": "a.png", "text": {"en": "x"}}', "its caption is an object"),
    ('{"file_name": "a.png", "text": ["x", 5]}', "among its captions is a number (5)"),
    ('{"file_name": "a.png", "text": [["x"]]}', "among its captions is a list"),
    ('{"file_name": "a.png", "text": "a\\u0000b"}', "its caption holds NUL"),
    ('{"file_name": "a.png", "text": "a\\ud800b"}', "half a surrogate pair"),
    ('{"file_name": "gone.png", "text": "x"}', "'gone.png': no such file"),
    ('{"file_name": "", "text": "x"}', "no ending is not an ending of pictures"),
    ('{"file_name": "notes.heic", "text": "x"}', "'.heic' is not an ending of pictures"),
    ('{"file_name": "deep\\\\a.png", "text": "x"}', "names are written with /"),
    ('{"file_name": "a\\u0000.png", "text": "x"}', "no such file"),
    ('{"file_name": "a.png\\u001b[31m", "text": "x"}', "\\x1b[31m"),
]


@pytest.mark.parametrize(("line", "reason"), HARD_LINES)
def test_a_row_that_cannot_be_used_is_named_by_its_line(tmp_path: Path, line: str, reason: str) -> None:
    put(tmp_path, "a.png", "b.png", "notes.heic")
    table(tmp_path, row("b.png", "fine"), "", line)
    items = read(tmp_path)
    assert captions_of(items) == {"b.png": ("fine",)}
    found = skipped_of(items)
    assert list(found) == ["metadata.jsonl:3"]
    assert reason in found["metadata.jsonl:3"]
    assert "\x1b" not in found["metadata.jsonl:3"]


def test_bytes_that_are_not_utf8_cost_their_row_only(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png", "\udcff.png")
    lines = [b'{"file_name": "a.png", "text": "caf\xe9"}', b'{"file_name": "b.png", "text": "fine"}']
    (tmp_path / "metadata.jsonl").write_bytes(
        b"\xef\xbb\xbf" + b"\r\n".join([*lines, b'{"file_name": "\xff.png", "text": "named in bytes"}'])
    )
    items = read(tmp_path)
    assert captions_of(items) == {"b.png": ("fine",), "\udcff.png": ("named in bytes",)}
    assert skipped_of(items) == {"metadata.jsonl:1": "its caption is not UTF-8, or holds half a surrogate pair"}


def test_pictures_without_a_row_are_left_out_and_told(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png", "deep/c.png")
    table(tmp_path, row("a.png"))
    items = read(tmp_path)
    assert skipped_of(items) == {}
    assert skipped_of(items, wanted=True) == dict.fromkeys(("b.png", "deep/c.png"), "no row of a table names it")


def test_rows_that_repeat_a_picture(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png")
    table(tmp_path, row("a.png", "one"), row("b.png"), row("a.png", "two"), row("./a.png", "one"), row("a.png", "six"))
    items = read(tmp_path)
    assert captions_of(items) == {"a.png": ("one",), "b.png": ("a thing",), "a.png#2": ("two",), "a.png#3": ("six",)}
    assert {item.media.name for item in items if isinstance(item, Sample) and "#" in item.key} == {"a.png"}
    assert skipped_of(items) == {"metadata.jsonl:4": "the same picture and caption as metadata.jsonl:1"}
    (note,) = [item for item in items if isinstance(item, Noted)]
    assert note.path == "metadata.jsonl"
    assert "2 rows name pictures of an earlier row" in note.reason
    assert "metadata.jsonl:3 (a.png#2), metadata.jsonl:5 (a.png#3)" in note.reason


def test_missing_captions_stop_or_are_skipped_or_empty(tmp_path: Path) -> None:
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
    assert set(skipped_of(skipped, wanted=True).values()) == {"no caption"}
    assert len(skipped_of(skipped, wanted=True)) == 13


# --- nothing outside the folder -----------------------------------------------------------------------------

OUTSIDE = [
    "/etc/passwd.png",
    "../secret.png",
    "deep/../../secret.png",
    "deep/../a.png",
    "..\\secret.png",
    "C:\\pictures\\a.png",
    "c:/pictures/a.png",
    "\\\\server\\share\\a.png",
    "https://example.org/a.png",
    "FILE:///etc/a.png",
    "file:a.png",
    "zip://a.png::b.zip",
    "data:image/png;base64,AAAA",
]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_a_row_that_leaves_the_folder_is_refused_by_number(tmp_path: Path, name: str, kind: str) -> None:
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


def test_all_rows_that_leave_the_folder_are_counted(tmp_path: Path) -> None:
    table(tmp_path, *(row(f"/{i}.png") for i in range(12)))
    assert "12 rows name a file outside" in error_of(tmp_path).message
    assert "metadata.jsonl:10 ('/9.png') and 2 more" in error_of(tmp_path).message


def test_a_nested_table_reaches_its_own_folder_only(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "deep/b.png")
    table(tmp_path, row("a.png"), row("b.png"), name="deep/metadata.jsonl")
    items = read(tmp_path)
    assert captions_of(items) == {"deep/b.png": ("a thing",)}
    assert "no such file below" in skipped_of(items)["deep/metadata.jsonl:1"]


def test_links_are_followed_inside_the_root_only(tmp_path: Path) -> None:
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
    reasons = skipped_of(items)
    assert "a link that leads out of the data set's folder" in reasons["metadata.jsonl:1"]
    assert "no such file" in reasons["metadata.jsonl:2"]
    assert reasons["far"] == "a link that leads out of the data set's folder"
    assert "not a regular file" in reasons["metadata.jsonl:4"]
    assert "no such file" in reasons["metadata.jsonl:5"]
    assert set(reasons) == {"far", *(f"metadata.jsonl:{i}" for i in (1, 2, 4, 5))}


def test_a_table_that_is_a_link_outward_is_not_read(tmp_path: Path) -> None:
    table(tmp_path, row("a.png"))
    put(tmp_path, "root/a.png")
    (tmp_path / "root" / "metadata.jsonl").symlink_to(tmp_path / "metadata.jsonl")
    error = error_of(tmp_path / "root")
    assert error.code == "E1210"
    assert "a link that leads out of the data set's folder" in error.message


# --- columns ------------------------------------------------------------------------------------------------


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
def test_a_wrong_column_lists_those_that_there_are(tmp_path: Path, kind: str, which: str) -> None:
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


def test_settings_without_effect_are_refused() -> None:
    for words in (["data.columns.caption=prompt"], ["data.split=test"], ["data.hub_config=x"], ["data.hub_cache=x"]):
        with pytest.raises(RecipeError, match=r"data\.format=image-folder"):
            read_text("schema: 1", overrides=words)
        assert read_text("schema: 1", overrides=[*words, "data.format=metadata"]).recipe.data.format == "metadata"
    with pytest.raises(RecipeError, match=r"data\.captions\.source has no effect"):
        read_text("schema: 1", overrides=["data.format=metadata", "data.captions.source=filename"])


# --- CSV ----------------------------------------------------------------------------------------------------


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
def test_variants_of_csv(tmp_path: Path, text: str, captions: tuple[str, ...]) -> None:
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
    reasons = skipped_of(items)
    assert set(reasons) == {f"metadata.csv:{i}" for i in (4, 5, 6, 7)}
    assert reasons["metadata.csv:4"].startswith("3 fields, but the header has 2")
    assert reasons["metadata.csv:6"].startswith("1 field, but")
    assert reasons["metadata.csv:7"] == "no picture"
    assert skipped_of(items, wanted=True) == {"metadata.csv:8": "no caption"}


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b'file_name,text\na.png,x\nb.png,"open\nc.png,y\n', "E1211", "the record that begins in line 3"),
        (b'file_name,text\na.png,"x" y\n', "E1211", "line 2"),
        (b"file_name,text\na.png," + b"x" * 200_000, "E1211", "line 2: field larger"),
        ("file_name,text\n".encode("utf-16"), "E1211", "UTF-16"),
        (b"version https://git-lfs.github.com/spec/v1\noid x", "E1211", "Git LFS pointer"),
        (b"", "E1212", "it is empty"),
        (b"file_name,text,text\na.png,x,y\n", "E1212", "'text' stands twice"),
    ],
)
def test_csv_that_cannot_be_read(tmp_path: Path, data: bytes, code: str, words: str) -> None:
    put(tmp_path, "a.png")
    (tmp_path / "metadata.csv").write_bytes(data)
    error = error_of(tmp_path)
    assert (error.code, words in error.message) == (code, True), error.message
    assert "metadata.csv" in error.message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b'[\n{"file_name": "a.png"}\n]', "is a JSON array; write one object a line"),
        (b'{"file_name": "a.png", "text": "' + b"x" * (17 << 20), "line 1 has more than"),
        ('{"file_name": "a.png"}'.encode("utf-16"), "UTF-16"),
        (b"version https://git-lfs.github.com/spec/v1\noid x", "Git LFS pointer"),
    ],
)
def test_json_lines_that_cannot_be_read(tmp_path: Path, data: bytes, words: str) -> None:
    put(tmp_path, "a.png")
    (tmp_path / "metadata.jsonl").write_bytes(data)
    error = error_of(tmp_path)
    assert error.code == "E1211"
    assert words in error.message


def test_a_caption_of_a_million_bytes_is_the_longest(tmp_path: Path) -> None:
    put(tmp_path, "a.png", "b.png")
    table(tmp_path, row("a.png", "x" * 1_000_000), row("b.png", "x" * 1_000_001))
    items = read(tmp_path)
    assert list(captions_of(items)) == ["a.png"]
    assert "more than 1,000,000 bytes" in skipped_of(items)["metadata.jsonl:2"]


# --- which tables -------------------------------------------------------------------------------------------


def test_without_a_table_the_message_says_what_is_read(tmp_path: Path) -> None:
    put(tmp_path, "a.png")
    assert error_of(tmp_path).code == "E1210"
    assert "data.format=image-folder" in error_of(tmp_path).message
    put(tmp_path, "captions.jsonl")
    assert "found captions.jsonl: a table of names is called metadata.jsonl" in error_of(tmp_path).message


def test_two_tables_in_one_folder_are_refused(tmp_path: Path) -> None:
    table(tmp_path, row("a.png"), name="deep/metadata.jsonl")
    table(tmp_path, "file_name,text", name="deep/metadata.csv")
    error = error_of(tmp_path)
    assert error.code == "E1210"
    assert "deep/metadata.csv, deep/metadata.jsonl" in error.message


def test_splits_are_told_by_names(tmp_path: Path) -> None:
    put(tmp_path, "train/a.png", "test/b.png", "my-val_1/c.png", "contrast/d.png")
    for name in ("train/a.png", "test/b.png", "my-val_1/c.png", "contrast/d.png"):
        folder, picture = name.split("/")
        table(tmp_path, row(picture), name=f"{folder}/metadata.jsonl")
    assert set(captions_of(read(tmp_path))) == {"train/a.png", "contrast/d.png"}
    assert set(captions_of(read(tmp_path, split="test"))) == {"test/b.png"}
    assert set(captions_of(read(tmp_path, split="validation"))) == {"my-val_1/c.png"}
    error = error_of(tmp_path, split="other")
    assert error.code == "E1216"
    assert "no part 'other'; it has 'test', 'train', 'validation'" in error.message
    settings = DataSettings(path=(tmp_path,), format="metadata")
    assert list_files(tmp_path, settings).unknown == {".jsonl": 2}


# --- the catalogue ------------------------------------------------------------------------------------------


def catalogue(root: Path, **values: Any) -> Catalogue:
    settings = {"path": [root], "format": "metadata", "resolution": 64, "buckets": {"step": 8}, **values}
    return build(DataSettings.model_validate(settings), root.parent / "index")


def paint(root: Path, count: int) -> None:
    root.mkdir()
    for i in range(count):
        Image.new("RGB", (70, 70), (i, 7, 9)).save(root / f"{i}.png")


def test_an_edited_caption_makes_another_catalogue_and_decodes_nothing(tmp_path: Path) -> None:
    paint(tmp_path / "root", 3)
    table(tmp_path / "root", *(row(f"{i}.png", f"picture {i}") for i in range(3)))
    first = catalogue(tmp_path / "root")
    assert first.report.decoded == 3
    assert catalogue(tmp_path / "root").folder == first.folder
    table(tmp_path / "root", *(row(f"{i}.png", f"picturE {i}") for i in range(3)))
    second = catalogue(tmp_path / "root")
    assert second.captions(1) == ("picturE 1",)
    assert second.report.decoded == 0
    assert second.fingerprint != first.fingerprint


def test_the_content_of_a_table_counts_even_if_times_do_not_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paint(tmp_path / "root", 2)
    table(tmp_path / "root", row("0.png", "red"), row("1.png", "tan"))
    monkeypatch.setattr("mezzotint.data.files.listing.Listing.digest", lambda listing: b"always the same")
    first = catalogue(tmp_path / "root")
    table(tmp_path / "root", row("0.png", "red"), row("1.png", "sky"))
    assert catalogue(tmp_path / "root").folder != first.folder
    assert catalogue(tmp_path / "root").captions(1) == ("sky",)


def test_columns_and_captions_settings_are_part_of_the_address(tmp_path: Path) -> None:
    paint(tmp_path / "root", 1)
    table(tmp_path / "root", row("0.png", "one\ntwo") | {"prompt": "three"})
    assert catalogue(tmp_path / "root").captions(0) == ("one two",)
    assert catalogue(tmp_path / "root", columns={"caption": "prompt"}).captions(0) == ("three",)
    assert catalogue(tmp_path / "root", captions={"lines": "choose"}).captions(0) == ("one", "two")


def test_rows_that_cannot_be_used_are_in_the_report_and_stop_when_too_many(tmp_path: Path) -> None:
    paint(tmp_path / "root", 2)
    lines = [row("0.png"), row("1.png"), row("gone.png"), "torn"]
    table(tmp_path / "root", *lines)
    report = catalogue(tmp_path / "root").report
    assert report.used == 2
    assert [path for path, _ in report.skipped] == ["metadata.jsonl:3", "metadata.jsonl:4"]
    table(tmp_path / "root", *lines, *(row(f"gone{i}.png") for i in range(20)))
    with pytest.raises(DatasetError) as found:
        catalogue(tmp_path / "root")
    assert found.value.code == "E1205"
    assert "22 of 24" in found.value.message


def test_a_repeated_picture_is_decoded_as_one_and_drawn_as_two(tmp_path: Path) -> None:
    paint(tmp_path / "root", 1)
    table(tmp_path / "root", row("0.png", "one"), row("0.png", "two"))
    made = catalogue(tmp_path / "root")
    assert [made.key(i) for i in range(2)] == ["0.png", "0.png#2"]
    assert made.path(0) == made.path(1) == tmp_path / "root" / "0.png"
    assert (made.digest[0] == made.digest[1]).all()
    assert made.key_hash[0] != made.key_hash[1]
    assert "a sample each" in made.report.notes[0][1]
