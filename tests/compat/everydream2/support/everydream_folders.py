"""Folders and manifests as the format `everydream` reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from mezzotint.stages import Sample
from support import data_sets
from support.messages import refused


def write_files(root: Path, files: Mapping[str, str | bytes | None]) -> Path:
    """Writes a folder of files; None is an image."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            Image.new("RGB", (64, 64), (len(name), 3, 3)).save(path, "PNG")
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


settings_of = partial(data_sets.settings_of, format="everydream")
read = partial(data_sets.read, format="everydream")


def samples(path: Path, **values: Any) -> dict[str, Sample]:
    return data_sets.samples_in(read(path, **values))


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
