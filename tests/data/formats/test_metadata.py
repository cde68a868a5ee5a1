"""The format metadata, from tables to the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.sections.data import DataSettings
from support.messages import refused
from support.tables import row, table


def test_keys_equal_those_of_an_image_folder(tmp_path: Path) -> None:
    for name in ("a.png", "deep/b.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (40, 40)).save(tmp_path / name)
        (tmp_path / name).with_suffix(".txt").write_text("hello")
    table(tmp_path, row("a.png", "hello"), row("deep/b.png", "hello"))
    data_sets = [
        build(DataSettings(path=(tmp_path,), format=kind, resolution=64), tmp_path.parent / f"{tmp_path.name}-index")
        for kind in ("image-folder", "metadata")
    ]
    assert data_sets[0].fingerprint == data_sets[1].fingerprint
    assert [data_sets[1].key(i) for i in range(2)] == ["a.png", "deep/b.png"]


def test_settings_without_effect_are_refused() -> None:
    for words in (["data.columns.caption=prompt"], ["data.split=test"], ["data.hub_config=x"], ["data.hub_cache=x"]):
        with pytest.raises(RecipeError, match=r"data\.format=image-folder"):
            read_text("schema: 1", overrides=words)
        assert read_text("schema: 1", overrides=[*words, "data.format=metadata"]).recipe.data.format == "metadata"
    with pytest.raises(RecipeError, match=r"data\.captions\.source has no effect"):
        read_text("schema: 1", overrides=["data.format=metadata", "data.captions.source=filename"])


def catalogue(root: Path, **values: Any) -> Catalogue:
    settings = {"path": [root], "format": "metadata", "resolution": 64, "buckets": {"step": 8}, **values}
    return build(DataSettings.model_validate(settings), root.parent / "index")


def paint(root: Path, count: int) -> None:
    root.mkdir()
    for i in range(count):
        Image.new("RGB", (70, 70), (i, 7, 9)).save(root / f"{i}.png")


def test_edited_caption_changes_the_catalogue_without_decoding(tmp_path: Path) -> None:
    paint(tmp_path / "root", 3)
    table(tmp_path / "root", *(row(f"{i}.png", f"image {i}") for i in range(3)))
    first = catalogue(tmp_path / "root")
    assert first.report.decoded == 3
    assert catalogue(tmp_path / "root").folder == first.folder
    table(tmp_path / "root", *(row(f"{i}.png", f"imagE {i}") for i in range(3)))
    second = catalogue(tmp_path / "root")
    assert second.captions(1) == ("imagE 1",)
    assert second.report.decoded == 0
    assert second.fingerprint != first.fingerprint


def test_changed_table_with_equal_times_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paint(tmp_path / "root", 2)
    table(tmp_path / "root", row("0.png", "red"), row("1.png", "tan"))
    monkeypatch.setattr("mezzotint.data.files.listing.Listing.digest", lambda listing: b"always the same")
    first = catalogue(tmp_path / "root")
    table(tmp_path / "root", row("0.png", "red"), row("1.png", "sky"))
    assert catalogue(tmp_path / "root").folder != first.folder
    assert catalogue(tmp_path / "root").captions(1) == ("sky",)


def test_catalogue_depends_on_columns_and_caption_settings(tmp_path: Path) -> None:
    paint(tmp_path / "root", 1)
    table(tmp_path / "root", row("0.png", "one\ntwo") | {"prompt": "three"})
    assert catalogue(tmp_path / "root").captions(0) == ("one two",)
    assert catalogue(tmp_path / "root", columns={"caption": "prompt"}).captions(0) == ("three",)
    assert catalogue(tmp_path / "root", captions={"lines": "random"}).captions(0) == ("one", "two")


def test_unusable_rows_are_reported_and_too_many_are_an_error(tmp_path: Path) -> None:
    paint(tmp_path / "root", 2)
    lines = [row("0.png"), row("1.png"), row("gone.png"), "torn"]
    table(tmp_path / "root", *lines)
    report = catalogue(tmp_path / "root").report
    assert report.used == 2
    assert [path for path, _ in report.skipped] == ["metadata.jsonl:3", "metadata.jsonl:4"]
    table(tmp_path / "root", *lines, *(row(f"gone{i}.png") for i in range(20)))
    with refused("E1205") as caught:
        catalogue(tmp_path / "root")
    assert "22 of 24" in caught.value.message


def test_repeated_image_is_decoded_once_but_is_two_samples(tmp_path: Path) -> None:
    paint(tmp_path / "root", 1)
    table(tmp_path / "root", row("0.png", "one"), row("0.png", "two"))
    data_set = catalogue(tmp_path / "root")
    assert [data_set.key(i) for i in range(2)] == ["0.png", "0.png#2"]
    assert data_set.path(0) == data_set.path(1) == tmp_path / "root" / "0.png"
    assert (data_set.digest[0] == data_set.digest[1]).all()
    assert data_set.key_hash[0] != data_set.key_hash[1]
    assert "a separate sample" in data_set.report.notes[0][1]
