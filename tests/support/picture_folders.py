"""Folders of pictures with captions beside them, as the format `image-folder` reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mezzotint.data.files.listing import walk
from mezzotint.data.formats.base import Skipped, Source
from mezzotint.data.formats.image_folder import FORMAT
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Sample


def put(root: Path, *names: str, text: str | bytes = b"x") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)


def read(root: Path, prefix: str = "", **captions: Any) -> list[Sample | Skipped]:
    settings = DataSettings.model_validate({"path": [root], "captions": captions})
    return list(FORMAT.read_samples(Source(root, settings, 1.5, walk(root, FORMAT.suffixes), prefix)))


def captions_of(root: Path, **captions: Any) -> dict[str, tuple[str, ...]]:
    return {item.key: item.captions for item in read(root, **captions) if isinstance(item, Sample)}


def skipped_of(root: Path, **captions: Any) -> dict[str, str]:
    return {item.path: item.reason for item in read(root, **captions) if isinstance(item, Skipped)}
