"""What every dataset format is given and gives back. A format lists samples with their captions; it decodes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mezzotint.data.files.listing import Listing
from mezzotint.recipe.sections.data import DataSettings


class PictureStore(Protocol):
    """Where a format puts pictures that are no files of their own."""

    def put(self, data: bytes) -> Path:
        """Keeps the bytes of a picture file and returns where they lie. The same bytes have the same place. Raises
        StorageError."""


@dataclass(frozen=True, slots=True)
class Source:
    """One folder of `data.path`. root: the folder. settings: the recipe's section. repeats: of its samples. listing:
    the files below it with the endings that the format's `SUFFIXES` names. prefix: put before each key, so that keys of
    several folders differ ("0/", "1/", …; empty for a single folder). pictures: where a format puts pictures that it
    finds inside other files; there whenever samples are read."""

    root: Path
    settings: DataSettings
    repeats: float
    listing: Listing
    prefix: str = ""
    pictures: PictureStore | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that is not used. path: as the report names it. is_wanted: the recipe asked for its leaving out, so that
    it does not count as unusable."""

    path: str
    reason: str
    is_wanted: bool = False


@dataclass(frozen=True, slots=True)
class Noted:
    """Something that the report should tell although nothing is left out. path: what it concerns."""

    path: str
    reason: str
