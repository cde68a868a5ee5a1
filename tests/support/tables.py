"""Folders of pictures with text tables, as the format `metadata` reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mezzotint.data.formats.base import Noted, Skipped, Source
from mezzotint.data.formats.metadata import list_files, read_samples
from mezzotint.errors import DatasetError
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.stages import Sample

Item = Sample | Skipped | Noted


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")


def table(root: Path, *rows: Any, name: str = "metadata.jsonl") -> None:
    """Lines of JSON; what is text already stands as it is."""
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))


def row(name: str, text: Any = "a thing") -> dict[str, Any]:
    return {"file_name": name, "text": text}


def read(root: Path, prefix: str = "", **values: Any) -> list[Item]:
    settings = DataSettings.model_validate({"path": [root], "format": "metadata", **values})
    return list(read_samples(Source(root, settings, 1.5, list_files(root, settings), prefix)))


def captions_of(items: Sequence[Item]) -> dict[str, tuple[str, ...]]:
    return {item.key: item.captions for item in items if isinstance(item, Sample)}


def skipped_of(items: Sequence[Item], wanted: bool = False) -> dict[str, str]:
    return {item.path: item.reason for item in items if isinstance(item, Skipped) and item.is_wanted == wanted}


def error_of(root: Path, **values: Any) -> DatasetError:
    with pytest.raises(DatasetError) as found:
        read(root, **values)
    return found.value
