"""The data report: one line for each file, with what was done with it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.reports import data_report
from mezzotint.settings.sections.data import DataSettings


def settings_of(root: Path) -> DataSettings:
    return DataSettings.model_validate(
        {"path": [root], "resolution": 64, "buckets": {"step": 8}, "captions": {"missing": "skip"}}
    )


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    root = tmp_path / "images"
    root.mkdir()
    for i in range(6):
        Image.new("RGB", (100, 100)).save(root / f"{i}.png")
    for i in range(6, 9):
        Image.new("RGBA", (150, 100), (0, 0, 0, 0)).save(root / f"{i}.png")
    (root / "bad\x1b[2J\n.png").write_bytes(b"nothing")
    (root / "notes.md").write_text("x")
    for image in list(root.glob("*.png")):
        image.with_suffix(".txt").write_text("a caption")
    Image.new("RGB", (100, 100)).save(root / "mute.png")
    return build(settings_of(root), tmp_path / "index")


def test_images_joined_to_clips_are_reported_separately(catalogue: Catalogue, tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "images")
    alone = data_report.write(catalogue, tmp_path, settings).read_text("ascii").splitlines()
    both = (
        data_report.write(replace(catalogue, joined_images=catalogue), tmp_path, settings)
        .read_text("ascii")
        .splitlines()
    )
    assert both[: len(alone)] == alone
    beside = [json.loads(line) for line in both[len(alone) :]]
    assert both[len(alone) :] == [json.dumps(line) for line in beside]
    assert [line["set"] for line in beside] == ["stills"] * 11
    assert [line["id"] for line in beside] == [json.loads(line)["id"] for line in alone]
    assert "bucket" in json.loads(alone[0])
    assert "bucket" not in beside[0]


def test_every_file_has_one_line(catalogue: Catalogue, tmp_path: Path) -> None:
    path = data_report.write(catalogue, tmp_path, settings_of(tmp_path / "images"))
    assert path == tmp_path / "data_report.jsonl"
    written = path.read_text("ascii").splitlines()
    assert written == [json.dumps(json.loads(line)) for line in written]
    lines = {line["id"]: line for line in map(json.loads, written)}
    assert len(lines) == 11
    digest = hashlib.sha256((tmp_path / "images" / "0.png").read_bytes()).hexdigest()
    assert lines["0.png"] == {
        "id": "0.png", "class": "used", "conversion": [], "size": "100×100", "bucket": "64×64", "sha256": digest,
    }  # fmt: skip
    assert lines["7.png"]["size"] == "150×100"
    assert [lines[f"{n}.png"].get("same_as") for n in (0, 5, 6, 8)] == [None, "0.png", None, "6.png"]
    assert lines["7.png"]["class"] == "converted"
    assert lines["7.png"]["conversion"] == ["transparency composited on the background colour"]
    assert lines["bad\x1b[2J\n.png"]["reason"] == "not an image of a known format"
    assert lines["mute.png"] == {"id": "mute.png", "class": "skipped", "reason": "no caption"}
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_lines_of_many_samples_are_copied_by_a_later_start(
    catalogue: Catalogue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path / "images")
    plain = data_report.write(catalogue, tmp_path, settings, {1: 5}).read_bytes()
    monkeypatch.setattr(catalogues, "MANY", 1)
    assert data_report.write(catalogue, tmp_path, settings, {1: 5}).read_bytes() == plain
    with monkeypatch.context() as context:
        context.setattr(data_report, "_lines", None)  # would be called for new lines
        assert data_report.write(catalogue, tmp_path, settings, {1: 5}).read_bytes() == plain
    cut = data_report.write(catalogue, tmp_path, settings, {1: 6}).read_bytes()
    assert cut == plain.replace(b'"lost_tokens": 5', b'"lost_tokens": 6')
    larger = settings.model_copy(update={"resolution": (128,)})
    assert b'"enlarged": true' in data_report.write(catalogue, tmp_path, larger, {1: 6}).read_bytes()
