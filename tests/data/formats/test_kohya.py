"""The format kohya: its folders, their repeats and captions."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mezzotint.errors import DatasetError, RecipeError
from mezzotint.settings.reading.read import read_text
from support import data_sets
from support.data_sets import put
from support.messages import refused

read = partial(data_sets.read, format="kohya")


def samples(root: Path, repeats: float = 1.0, **captions: Any) -> dict[str, tuple[float, str]]:
    items = data_sets.samples_in(read(root, repeats=repeats, captions=captions))
    return {key: (sample.repeats, *sample.captions) for key, sample in items.items()}  # type: ignore[misc]


def test_folder_name_gives_repeats_and_caption(tmp_path: Path) -> None:
    put(tmp_path, "10_sks dog/a.png", "10_sks dog/b.png", "3_white_fox/c.webp", "007_cat/d.png")
    (tmp_path / "10_sks dog" / "b.txt").write_text("sks dog, asleep, on a chair\n")
    (tmp_path / "3_white_fox" / "c.caption").write_text("a fox\nsecond line\n")
    expected = {
        "007_cat/d.png": (7.0, "cat"),
        "10_sks dog/a.png": (10.0, "sks dog"),
        "10_sks dog/b.png": (10.0, "sks dog, asleep, on a chair"),
        "3_white_fox/c.webp": (3.0, "a fox"),  # the first of several lines, as in kohya's scripts
    }
    assert samples(tmp_path) == expected
    assert {key: sample[0] for key, sample in samples(tmp_path, repeats=0.5).items()} == {
        key: sample[0] / 2 for key, sample in expected.items()
    }
    assert samples(tmp_path, lines="join")["3_white_fox/c.webp"] == (3.0, "a fox second line")
    (tmp_path / "3_white_fox" / "c.caption").unlink()
    assert samples(tmp_path)["3_white_fox/c.webp"] == (3.0, "white_fox")


def test_folder_name_without_text_requires_captions(tmp_path: Path) -> None:
    put(tmp_path, "5/a.png", "4_/b.png")
    with refused("E1203", r"2 images have no caption.*missing=empty \(or skip\)$"):
        read(tmp_path)
    assert samples(tmp_path, missing="empty") == {"4_/b.png": (4.0, ""), "5/a.png": (5.0, "")}
    (tmp_path / "5" / "a.txt").write_text("five")
    assert samples(tmp_path, missing="skip") == {"5/a.png": (5.0, "five")}


def test_files_that_kohya_ignores_are_left_out_and_reported(tmp_path: Path) -> None:
    put(
        tmp_path, "2_dog/a.png", "top.png", "more/b.png", "more/b.txt", "0_never/c.png", "2_dog/deep/d.png", "x_1/e.png"
    )
    items = read(tmp_path)
    assert list(data_sets.samples_in(items)) == ["2_dog/a.png"]
    assert data_sets.skipped_of(items, is_wanted=True) == {
        "top.png": "not in a folder such as 10_name",
        "more/b.png": "more has no number of repeats; name it like 10_name",
        "0_never/c.png": "0_never has 0 repeats",
        "2_dog/deep/d.png": "not directly in its folder such as 10_name",
        "x_1/e.png": "x_1 has no number of repeats; name it like 10_name",
    }
    assert data_sets.skipped_of(items, is_wanted=False) == {}
    noted = dict(data_sets.notes_of(items))
    assert noted["more"] == "1 image left out: more has no number of repeats; name it like 10_name"
    assert noted.keys() == {"", "more", "0_never", "2_dog", "x_1"}


def test_missing_numbered_folders_are_reported_with_an_example(tmp_path: Path) -> None:
    with refused("E1150", "contains no folder such as 10_name"):
        read(put(tmp_path / "one", "dogs/a.png"))
    with pytest.raises(DatasetError, match=rf"data\.path={tmp_path}$"):
        read(put(tmp_path / "10_sks dog", "a.png"))


def test_first_line_is_the_default_and_other_sources_are_refused() -> None:
    assert read_text("data: {path: x, format: kohya}").recipe.data.captions.lines == "first"
    assert read_text("data: {path: x, format: kohya, captions: {lines: join}}").recipe.data.captions.lines == "join"
    assert read_text("data: {path: x}", overrides=["data.format=kohya"]).recipe.data.captions.lines == "first"
    with pytest.raises(RecipeError, match=r"data\.captions\.source has no effect with data\.format=kohya"):
        read_text("data: {path: x, format: kohya, captions: {source: either}}")
