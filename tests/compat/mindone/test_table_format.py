"""The format mindone: tables with the columns dir and text."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from mezzotint.data.catalogue.catalogue import build
from mezzotint.errors import DatasetError, RecipeError
from mezzotint.settings.reading.read import read_text
from support import data_sets
from support.data_sets import captions_of, notes_of, settings_of, skipped_of
from support.messages import refused


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    for name in ("a.png", "b.jpg", "deep/c.webp", "deep/d.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 30), (len(name), 9, 9)).save(folder / name)
    return folder


def table(root: Path, text: str, name: str = "img_txt.csv") -> None:
    (root / name).write_text(text, encoding="utf-8")


read = partial(data_sets.read, format="mindone")


def test_tables_are_read_in_order_with_unchanged_captions(root: Path) -> None:
    table(root, 'dir,text\ndeep/c.webp,"a cat, asleep"\nb.jpg,NA\n', "2.csv")
    table(root, "\ufeffid,text,dir\n1,nan,a.png\n2,,deep/d.png\n", "1.csv")
    assert list(captions_of(read(root)).items()) == [
        ("a.png", ("nan",)), ("deep/d.png", ("",)), ("deep/c.webp", ("a cat, asleep",)), ("b.jpg", ("NA",)),
    ]  # fmt: skip


def test_repeated_row_is_two_samples(root: Path) -> None:
    table(root, "dir,text\na.png,one\na.png,one\na.png,two\n")
    items = read(root)
    assert captions_of(items) == {"a.png": ("one",), "a.png#2": ("one",), "a.png#3": ("two",)}
    rows = "img_txt.csv:3 (a.png#2), img_txt.csv:4 (a.png#3)"
    reason = f"2 rows name images of an earlier row: a separate sample: {rows}"
    assert notes_of(items) == [("img_txt.csv", reason)]


def test_rows_without_images_and_images_without_rows_are_skipped(root: Path) -> None:
    table(root, "dir,text\na.png,one\nlost.png,two\nb.jpg\n")
    table(root, "dir,text\nx.png,of another folder\n", "deep/img_txt.csv")
    items = read(root)
    assert skipped_of(items, is_wanted=False) == {
        "img_txt.csv:3": "'lost.png': no such file below the folder of the table",
        "img_txt.csv:4": "1 field, but the header has 2; put texts that contain the separator in quotes",
    }
    assert list(skipped_of(items, is_wanted=True)) == ["b.jpg", "deep/c.webp", "deep/d.png"]


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("dir,caption\na.png,x\n", "E1212", "no column 'text' for the caption; its columns are 'dir', 'caption'; "
         "the first line of the table reads dir,text"),
        ("file,text\na.png,x\n", "E1212", "no column 'dir' for the image"),
        ("", "E1212", "it is empty"),
        ("dir,text\n../a.png,x\n", "E1213", "names a file outside the folder"),
        ("dir,text\n/etc/passwd,x\n", "E1213", "img_txt.csv:2"),
    ],
)  # fmt: skip
def test_malformed_table_is_reported(root: Path, text: str, code: str, expected: str) -> None:
    table(root, text)
    with pytest.raises(DatasetError) as error:
        read(root)
    assert error.value.code == code
    assert expected in error.value.message


def test_folder_without_a_table_names_one_nearby(root: Path) -> None:
    with refused("E1210", "put one into it"):
        read(root)
    table(root, "dir,text\nc.webp,x\n", "deep/img_txt.csv")
    with pytest.raises(DatasetError, match=r"deep/img_txt\.csv is deeper"):
        read(root)


def test_edited_table_changes_the_dataset_identity(root: Path, tmp_path: Path) -> None:
    table(root, "dir,text\na.png,one\nb.jpg,two\n")
    settings = settings_of(root, format="mindone")
    before = build(settings, tmp_path / "index", workers=1)
    table(root, "dir,text\na.png,one\nb.jpg,too\n")
    after = build(settings, tmp_path / "index", workers=1)
    assert (before.captions(1), after.captions(1)) == (("two",), ("too",))
    assert before.fingerprint != after.fingerprint
    assert after.report.decoded == 0


def test_settings_of_other_formats_are_refused() -> None:
    for words in (["data.columns.caption=prompt"], ["data.captions.source=filename"]):
        with pytest.raises(RecipeError, match=r"no effect with data\.format=mindone"):
            read_text("schema: 1", overrides=["data.format=mindone", *words])
