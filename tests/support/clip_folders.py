"""Folders of video clips and images."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mezzotint.settings.sections.data import DataSettings

ClipWriter = Callable[..., Path]
SIZES = [[9, 32, 32], [5, 32, 32], [5, 24, 40]]


def settings_of(films: Path, *, clips: dict[str, Any] | None = None, **values: Any) -> DataSettings:
    chosen = {
        "frames": 9,
        "buckets": SIZES,
        "images": 2,
        "images_from": "images",
        "images_path": films / "images",
    }
    plain = {"path": films / "media", "format": "videofolder", "batch_size": 4, "workers": 0, "flip": 0.5}
    return DataSettings(
        **plain | {"crop": "random", "captions": {"dropout": 0.2}} | values, clips=chosen | (clips or {})
    )


def probe(path: Path) -> tuple[int, int, int, float, dict[str, str]]:
    """Frames, width, height, rate and texts of a file, by decoding it."""
    import av  # an extra

    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        count = sum(1 for _ in container.decode(stream))
        return count, stream.width, stream.height, float(stream.average_rate or 0), dict(container.metadata)


def write_images(folder: Path, count: int) -> None:
    """Images of noise in `images/`, captions beside them."""
    (folder / "images").mkdir()
    for n in range(count):
        rng = np.random.Generator(np.random.Philox(key=n))
        Image.fromarray(rng.integers(0, 256, (40, 52, 3), dtype=np.uint8)).save(folder / f"images/{n}.png")
        (folder / f"images/{n}.txt").write_text(f"image {n}")
