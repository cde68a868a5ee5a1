"""Synthetic images instead of a data set that is not available."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from mezzotint.settings.sections.conditions import ConditionSettings
from mezzotint.settings.sections.data import DataSettings
from mezzotint.tasks.bench import synthetic


def test_synthetic_images_are_deterministic_and_written_once(tmp_path: Path) -> None:
    settings = synthetic.with_images(DataSettings(path=(tmp_path / "nosuch",), resolution=64), 12, tmp_path)
    folder = settings.path
    assert folder is not None
    assert len(list(folder.glob("*.png"))) == len(list(folder.glob("*.txt"))) == 12
    assert len({path.read_bytes() for path in folder.iterdir()}) == 24
    with Image.open(folder / "00003.png") as image:
        assert (image.size, image.mode) == ((64, 64), "RGB")
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert synthetic.write(folder, 12, 64) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    again = synthetic.write(tmp_path / "again", 12, 64)
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


def test_conditions_are_synthetic_too(tmp_path: Path) -> None:
    own = ConditionSettings(folder=Path("nosuch"), align="own")
    data = DataSettings(path=(tmp_path / "nosuch",), resolution=64, conditions={"source": own, "style": own})
    settings = synthetic.with_images(data, 3, tmp_path)
    assert {one.align for one in settings.conditions.values()} == {"own"}
    folders = [one.folder for one in settings.conditions.values() if one.folder is not None]
    assert len({settings.path, *folders}) == 3
    assert all(sorted(path.name for path in one.glob("*.png")) == [f"0000{n}.png" for n in range(3)] for one in folders)
