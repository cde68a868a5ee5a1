"""Folder names that contain a number of repeats."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from mezzotint.data.catalogue import catalogue
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings


def test_kohya_format_is_suggested_for_numbered_folders(tmp_path: Path) -> None:
    (tmp_path / "10_sks dog").mkdir()
    Image.new("RGB", (32, 32)).save(tmp_path / "10_sks dog" / "a.png")
    plain = DataSettings(path=(tmp_path,), resolution=64)
    with pytest.raises(DatasetError, match=r"10_sks dog looks like one of kohya's folders, which data\.format=kohya"):
        catalogue.build(plain, tmp_path / "index")
    data_set = catalogue.build(plain.model_copy(update={"format": "kohya"}), tmp_path / "index")
    assert (data_set.repeats.tolist(), data_set.captions(0)) == ([10.0], ("sks dog",))
