"""Finding the tables of a data set."""

from __future__ import annotations

from pathlib import Path

from mezzotint.data.formats.metadata import list_files
from mezzotint.settings.sections.data import DataSettings
from support.data_sets import captions_of, put
from support.tables import error_of, read, row, table


def test_table_that_links_outside_is_not_read(tmp_path: Path) -> None:
    table(tmp_path, row("a.png"))
    put(tmp_path, "root/a.png")
    (tmp_path / "root" / "metadata.jsonl").symlink_to(tmp_path / "metadata.jsonl")
    error = error_of(tmp_path / "root")
    assert error.code == "E1210"
    assert "a link to a path outside the data set's folder" in error.message


def test_missing_table_error_names_the_expected_file(tmp_path: Path) -> None:
    put(tmp_path, "a.png")
    assert error_of(tmp_path).code == "E1210"
    assert "data.format=image-folder" in error_of(tmp_path).message
    put(tmp_path, "captions.jsonl")
    assert "found captions.jsonl: name a table of file names metadata.jsonl" in error_of(tmp_path).message


def test_two_tables_in_one_folder_are_refused(tmp_path: Path) -> None:
    table(tmp_path, row("a.png"), name="deep/metadata.jsonl")
    table(tmp_path, "file_name,text", name="deep/metadata.csv")
    error = error_of(tmp_path)
    assert error.code == "E1210"
    assert "deep/metadata.csv, deep/metadata.jsonl" in error.message


def test_splits_are_recognised_by_names(tmp_path: Path) -> None:
    put(tmp_path, "train/a.png", "test/b.png", "my-val_1/c.png", "contrast/d.png")
    for name in ("train/a.png", "test/b.png", "my-val_1/c.png", "contrast/d.png"):
        folder, image = name.split("/")
        table(tmp_path, row(image), name=f"{folder}/metadata.jsonl")
    assert set(captions_of(read(tmp_path))) == {"train/a.png", "contrast/d.png"}
    assert set(captions_of(read(tmp_path, split="test"))) == {"test/b.png"}
    assert set(captions_of(read(tmp_path, split="validation"))) == {"my-val_1/c.png"}
    error = error_of(tmp_path, split="other")
    assert error.code == "E1216"
    assert "no split 'other'; it has 'test', 'train', 'validation'" in error.message
    settings = DataSettings(path=(tmp_path,), format="metadata")
    assert list_files(tmp_path, settings).unknown == {".jsonl": 2}
