"""Images are probed once, and the results are reused."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from mezzotint import fault_injection
from mezzotint.data.catalogue.catalogue import build
from mezzotint.errors import DatasetError
from support.data_sets import small_of as settings_of
from support.image_catalogues import Looks, paint
from support.images import broken_inside


def test_only_changed_files_are_decoded_again(painted: Path, index: Path, looks: Looks) -> None:
    first = build(settings_of(painted), index)
    looks.taken()
    Image.new("RGB", (99, 70)).save(painted / "002.png")
    (painted / "003.txt").write_text("another caption")
    (painted / "004.png").unlink()
    (painted / "004.txt").unlink()
    paint(painted, 1, start=50)
    second = build(settings_of(painted), index)
    assert looks.taken() == ["002.png", "050.png"]
    assert second.report.decoded == 2
    assert [second.key(row) for row in range(len(second))] == [
        "000.png",
        "001.png",
        "002.png",
        "003.png",
        "005.png",
        "050.png",
    ]
    assert int(second.width[2]) == 99
    assert second.captions(3) == ("another caption",)
    assert (second.digest[4] == first.digest[5]).all()
    assert second.fingerprint != first.fingerprint


def test_other_settings_reuse_known_files(painted: Path, index: Path, looks: Looks) -> None:
    build(settings_of(painted), index)
    looks.taken()
    build(settings_of(painted, resolution=32, repeats=3, captions={"source": "filename"}), index)
    assert looks.taken() == []
    with pytest.raises(DatasetError, match="none of 6 files"):
        build(settings_of(painted, max_pixels=100), index)
    assert len(looks.taken()) == 6


def test_interrupted_start_keeps_what_was_decoded(
    painted: Path, index: Path, looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    paint(painted, 60, start=200)
    monkeypatch.setattr("mezzotint.data.catalogue._probing._CHUNK", 4)
    try:
        fault_injection.arm("data.decode@40:raise")
        with pytest.raises(RuntimeError, match="a fault was injected"):
            build(settings_of(painted), index, workers=1)
    finally:
        fault_injection.arm("")
    journal = next(index.glob("*/journal-*.jsonl"))
    with journal.open("a") as file:
        file.write('["torn')  # a line truncated by a crash
    looks.taken()
    assert len(build(settings_of(painted), index, workers=1)) == 66
    assert 66 - 40 <= len(looks.taken()) <= 66 - 28
    assert not journal.exists()


def test_verification_on_first_use_gives_the_same_index_without_decoding(
    painted: Path, index: Path, looks: Looks
) -> None:
    glanced = build(settings_of(painted, verify="on_first_use"), index)
    assert looks.taken() == [], "plain images are not decoded"
    decoded = build(settings_of(painted), index)
    assert len(looks.taken()) == 6, "images that were only opened are decoded"
    assert glanced.fingerprint == decoded.fingerprint
    for name in ("width", "height", "digest", "conversions"):
        assert (getattr(glanced, name) == getattr(decoded, name)).all()
    Image.new("RGB", (99, 70)).save(painted / "002.png")
    changed = build(settings_of(painted, verify="on_first_use"), index)
    assert changed.report.decoded == 1, "results of decoding are reused"
    broken_inside(painted / "003.png")
    assert len(build(settings_of(painted, verify="on_first_use"), index)) == 6
    assert len(build(settings_of(painted), index)) == 5


def test_interrupted_start_does_not_verify_unseen_files(painted: Path, index: Path, looks: Looks) -> None:
    broken_inside(painted / "005.png")
    try:
        fault_injection.arm("data.decode@6:raise")
        with pytest.raises(RuntimeError, match="a fault was injected"):
            build(settings_of(painted, verify="on_first_use"), index, workers=1)
    finally:
        fault_injection.arm("")
    assert len(build(settings_of(painted), index, workers=1)) == 5
    assert len(looks.taken()) == 6
