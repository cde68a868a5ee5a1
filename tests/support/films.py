"""Lists of clips and pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mezzotint.recipe.sections.data import DataSettings

ClipWriter = Callable[..., Path]
SIZES = [[9, 32, 32], [5, 32, 32], [5, 24, 40]]


def settings_of(films: Path, *, clips: dict[str, Any] | None = None, **values: Any) -> DataSettings:
    chosen = {
        "frames": 9,
        "buckets": SIZES,
        "stills": 2,
        "stills_from": "images",
        "stills_path": films / "pictures.txt",
    }
    plain = {"path": films / "clips.txt", "format": "clip-list", "batch_size": 4, "workers": 0, "flip": 0.5}
    return DataSettings(
        **plain | {"crop": "random", "captions": {"dropout": 0.2}} | values, clips=chosen | (clips or {})
    )
