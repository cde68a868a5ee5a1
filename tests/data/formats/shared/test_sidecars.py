"""Captions in files next to images, and in file names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mezzotint.errors import DatasetError
from support.data_sets import captions_of, put, read, skipped_of
from support.messages import refused


def test_two_sidecars_must_be_equal(tmp_path: Path) -> None:
    put(tmp_path, "a.png")
    put(tmp_path, "a.txt", text="same\n")
    put(tmp_path, "a.caption", text="same")
    assert captions_of(read(tmp_path)) == {"a.png": ("same",)}
    put(tmp_path, "a.caption", text="other")
    with refused("E1204") as caught:
        read(tmp_path)
    assert "a.txt" in caught.value.message
    assert "a.caption" in caught.value.message


@pytest.mark.parametrize("captions", [{}, {"source": "either"}, {"missing": "empty"}])
def test_caption_that_is_a_pipe_or_outside_link_is_skipped(tmp_path: Path, captions: dict[str, str]) -> None:
    root = tmp_path / "root"
    put(root, "a.png", "pipe.png", "sub/out.png")
    put(root, "a.txt", text="here")
    put(tmp_path, "out.txt", text="elsewhere")
    os.mkfifo(root / "pipe.txt")
    (root / "sub" / "out.txt").symlink_to(tmp_path / "out.txt")
    assert captions_of(read(root, captions=captions)) == {"a.png": ("here",)}
    reasons = skipped_of(read(root, captions=captions))
    assert reasons["pipe.png"] == "its caption pipe.txt is not a regular file"
    assert reasons["sub/out.png"] == "its caption out.txt is a link to a path outside the data set's folder"


def test_error_names_the_first_ten_missing_captions(tmp_path: Path) -> None:
    put(tmp_path, *(f"{i:02}.png" for i in range(13)))
    put(tmp_path, "00.txt", text="here")
    with refused("E1203") as caught:
        read(tmp_path)
    assert "12 images have no caption: 01.png, 02.png" in caught.value.message
    assert "10.png and 2 more; add 01.txt" in caught.value.message
    assert "11.png" not in caught.value.message


def test_metadata_format_is_suggested_if_there_is_a_table(tmp_path: Path) -> None:
    put(tmp_path, "a.png")
    with pytest.raises(DatasetError) as caught:
        read(tmp_path)
    assert "data.format" not in caught.value.message
    put(tmp_path, "metadata.csv", text="file_name,text")
    with pytest.raises(
        DatasetError, match=r"data\.format=metadata reads the metadata\.csv in this folder; otherwise add"
    ):
        read(tmp_path)


def test_captions_are_taken_from_file_names(tmp_path: Path) -> None:
    put(tmp_path, "a_red__house.v2.png", "\udcff.png")
    put(tmp_path, "a_red__house.v2.txt", text="sidecar")
    assert captions_of(read(tmp_path, captions={"source": "filename"})) == {"a_red__house.v2.png": ("a red house.v2",)}
    assert "its name is not UTF-8" in skipped_of(read(tmp_path, captions={"source": "filename"}))["\udcff.png"]
    assert captions_of(read(tmp_path, captions={"source": "either"})) == {"a_red__house.v2.png": ("sidecar",)}
