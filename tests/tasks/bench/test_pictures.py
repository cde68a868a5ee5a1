"""The stand-in for pictures that are not to be had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from mezzotint.tasks.bench import _pictures


def test_the_stand_in_is_drawn_once_and_always_the_same(tmp_path: Path) -> None:
    folder = _pictures.folder_of(tmp_path, 12, 48)
    _pictures.draw(folder, 12, 48)
    assert len(list(folder.glob("*.png"))) == len(list(folder.glob("*.txt"))) == 12
    image, caption = _pictures.picture(3, 48)
    with Image.open(folder / "00003.png") as kept:
        assert kept.size == (48, 48)
        assert np.array_equal(np.asarray(kept), np.asarray(image))
    assert (folder / "00003.txt").read_text().strip() == caption
    assert len({path.read_bytes() for path in folder.glob("*.png")}) == 12
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    _pictures.draw(folder, 12, 48)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_captions_tell_the_pictures_apart() -> None:
    captions = [_pictures.picture(number, 16)[1] for number in range(833)]
    assert len(set(captions)) > 800
