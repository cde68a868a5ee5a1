"""Folders and manifests as the format `everydream` reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image
from refusals import refused

from mezzotint.data.formats import everydream
from mezzotint.data.formats.base import Noted, Skipped, Source
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Sample


def lay(root: Path, files: Mapping[str, str | bytes | None]) -> Path:
    """A folder of files; None is a picture."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            Image.new("RGB", (64, 64), (len(name), 3, 3)).save(path, "PNG")
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def settings_of(*paths: Path, **values: Any) -> DataSettings:
    return DataSettings.model_validate({"path": list(paths), "format": "everydream", **values})


def read(path: Path, **values: Any) -> list[Sample | Skipped | Noted]:
    settings = settings_of(path, **values)
    listing = everydream.FORMAT.files_at(path, settings)
    return list(everydream.FORMAT.read_samples(Source(listing.root, settings, 1.0, listing)))


def samples(path: Path, **values: Any) -> dict[str, Sample]:
    return {item.key: item for item in read(path, **values) if isinstance(item, Sample)}


def own(sample: Sample) -> dict[str, str]:
    return dict(sample.overrides)


def problem(path: Path, **values: Any) -> str:
    with refused("E1217") as caught:
        read(path, **values)
    return caught.value.message


def manifest(root: Path, *entries: Any, name: str = "list.json") -> Path:
    path = root / name
    path.write_text(json.dumps(list(entries)))
    return path
