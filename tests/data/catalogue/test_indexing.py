"""Contents of an index, and what is left out."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from mezzotint.data.catalogue.catalogue import build
from support.data_sets import small_of as settings_of
from support.image_catalogues import error_of, paint


def test_fingerprint_depends_on_content_and_not_on_the_path(painted: Path, index: Path, tmp_path: Path) -> None:
    first = build(settings_of(painted), index)
    moved = painted.rename(tmp_path / "moved")
    assert build(settings_of(moved), index).fingerprint == first.fingerprint
    (moved / "000.txt").write_text("other")
    assert build(settings_of(moved), index).fingerprint != first.fingerprint
    (moved / "000.txt").write_text("image 0")
    assert build(settings_of(moved), index).fingerprint == first.fingerprint
    assert build(settings_of(moved, repeats=2), index).fingerprint != first.fingerprint


def test_several_folders_have_separate_keys_and_repeats(tmp_path: Path, index: Path) -> None:
    paint(tmp_path / "a", 2)
    paint(tmp_path / "b", 2)
    data_set = build(settings_of(sets=[{"path": tmp_path / "a"}, {"path": tmp_path / "b", "repeats": 0.5}]), index)
    assert [data_set.key(row) for row in range(4)] == ["0/000.png", "0/001.png", "1/000.png", "1/001.png"]
    assert data_set.path(3) == tmp_path / "b" / "001.png"
    assert data_set.repeats.tolist() == [1, 1, 0.5, 0.5]


def test_missing_path_is_an_error(index: Path) -> None:
    assert error_of(settings_of(), index).code == "E1201"


def test_samples_excluded_by_the_recipe_are_not_errors(painted: Path, index: Path) -> None:
    for i in range(30):
        Image.new("RGB", (80, 80)).save(painted / f"mute{i:02}.png")
    paint(painted, 1, start=90, size=(20, 20))
    data_set = build(settings_of(painted, small_images="skip", captions={"missing": "skip"}), index)
    assert len(data_set) == 6
    assert data_set.report.skipped == ()
    assert len(data_set.report.left_out) == 31
    assert data_set.report.left_out[0] == ("090.png", "20×20 is smaller than its bucket (data.small_images=skip)")


def test_empty_and_long_captions_are_counted(painted: Path, index: Path) -> None:
    (painted / "000.txt").write_text("")
    (painted / "001.txt").write_text("word " * 61)
    report = build(settings_of(painted), index).report
    assert (report.empty_captions, report.long_captions) == (1, 1)


def test_images_below_one_step_are_left_out(painted: Path, index: Path) -> None:
    paint(painted, 1, start=90, size=(20, 70))
    settings = settings_of(painted, resolution=64, buckets={"shape": "own", "step": 32})
    report = build(settings, index).report
    reason = "20×70 has less than one step (data.buckets.step=32) on a side"
    assert (report.skipped, report.left_out, report.upscaled) == ((), (("090.png", reason),), 0)
