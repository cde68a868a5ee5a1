"""Catalogues (sample lists) of small images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mezzotint.data.catalogue.catalogue import Catalogue, build
from mezzotint.data.files import columns
from mezzotint.data.files.columns import TextBuilder
from mezzotint.data.media import decoding
from mezzotint.errors import DatasetError
from mezzotint.settings.sections.data import DataSettings


def paint(root: Path, count: int, start: int = 0, size: tuple[int, int] = (80, 70)) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for i in range(start, start + count):
        Image.new("RGB", size, (i % 256, 7, 9)).save(root / f"{i:03}.png")
        (root / f"{i:03}.txt").write_text(f"image {i}")


def many(folder: Path, count: int) -> Catalogue:
    """A made-up catalogue of so many samples in ten folders, over the files of three images."""
    paint(folder / "images", 3)
    few = build(DataSettings(path=(folder / "images",)), folder / "index")
    table, about = columns.read(few.folder)
    wide = {name: np.resize(column, (count, *column.shape[1:])) for name, column in table.items() if len(column) == 3}
    wide["key_hash"] = np.arange(count, dtype=np.uint64)
    wide["digest"] = np.zeros((count, 32), np.uint8)
    wide["digest"][:, :8] = np.arange(count, dtype="<u8")[:, None].view(np.uint8)
    wide["width"] = 64 + np.arange(count, dtype=np.int32) % 512
    texts = {name: TextBuilder() for name in ("key", "path", "caption")}
    for number in range(count):
        texts["key"].append(f"{number % 10}/{number:07d}.png")
        texts["path"].append(f"{number % 3:03}.png")
        texts["caption"].append(f"an image of thing {number}, with some more words behind it")
    for name, builder in texts.items():
        wide |= builder.texts().columns(name)
    wide["caption_starts"] = np.arange(count + 1)
    none = {f"{name}_offsets": np.zeros(count + 1, np.int64) for name in ("tags", "embedding", "sizes")}
    columns.write(few.folder.parent / "many", {**table, **wide, **none}, about)
    return Catalogue.open(few.folder.parent / "many", few.roots)


class Looks:
    """Counts the images that are decoded."""

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
