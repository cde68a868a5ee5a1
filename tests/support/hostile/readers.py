"""What a fuzzed reader needs: its sound files, which of them are mutated, and how a folder is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mezzotint.data.formats.base import Source, format_of
from mezzotint.settings.sections.data import DataSettings
from support.hostile import seeds
from support.hostile.doors import Door
from support.hostile.entry import file

IMAGE = file("a.png", seeds.image_file())


@dataclass(frozen=True, slots=True)
class Reader:
    """lay: puts sound files into a folder. files: those that are mutated, of which one at a time. read: reads the
    folder. words: that such a file may hold. share: of the mutations that others get, where each takes longer."""

    lay: Callable[[Path], object]
    files: tuple[str, ...]
    read: Callable[[Path], object]
    words: tuple[bytes, ...] = ()
    share: float = 1.0


def through(door: Door) -> Callable[[Path], object]:
    """Reads a folder as a door of the corpus does."""
    return lambda folder: door(folder, folder.parent / "work")


def listed(format_: str, path: str = ".", **values: object) -> Callable[[Path], object]:
    """What a format makes of a folder, without an index."""

    def read(folder: Path) -> None:
        given = {"path": [folder / path], "format": format_, "captions": {"missing": "empty"}, **values}
        settings, chosen = DataSettings.model_validate(given), format_of(format_)
        listing = chosen.files_at(folder / path, settings)
        for _ in chosen.read_samples(Source(listing.root, settings, listing, images=Nowhere())):
            pass

    return read


class Nowhere:
    """Where images from inside tables go."""

    def put(self, data: bytes) -> Path:
        return Path(f"{len(data)}.png")


def both(*lays: Callable[[Path], object]) -> Callable[[Path], None]:
    def lay(folder: Path) -> None:
        for one in lays:
            one(folder)

    return lay
