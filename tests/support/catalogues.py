"""Catalogues of small pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from mezzotint.data.catalogue.catalogue import build
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.recipe.sections.data import DataSettings


def paint(root: Path, count: int, start: int = 0, size: tuple[int, int] = (80, 70)) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for i in range(start, start + count):
        Image.new("RGB", size, (i % 256, 7, 9)).save(root / f"{i:03}.png")
        (root / f"{i:03}.txt").write_text(f"picture {i}")


class Looks:
    """Counts the pictures that are decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[str] = []
        original = decoding.probe

        def counted(path: Path, max_pixels: int) -> decoding.Probe:
            self.names.append(path.name)
            return original(path, max_pixels)

        monkeypatch.setattr(decoding, "probe", counted)

    def taken(self) -> list[str]:
        names, self.names = sorted(self.names), []
        return names


def indexes_in(index: Path) -> list[Path]:
    return sorted(path.parent for path in index.glob("*/[0-9a-f]*/manifest.json"))


def error_of(settings: DataSettings, index: Path) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        build(settings, index)
    return caught.value
