"""Synthetic images with captions, for a benchmark whose own images are not available (`bench --stand-in=N`)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from PIL import Image

from mezzotint import durable
from mezzotint.settings.base import with_values
from mezzotint.settings.sections.data import CaptionSettings, DataSettings


def with_images(settings: DataSettings, count: int, below: Path) -> DataSettings:
    """The settings with `count` synthetic images, written below a folder, in place of their data set, and as many for
    each of its conditions."""
    side = max(settings.resolution)
    folder = write(below / "stand-in" / f"{count}-images-of-{side}", count, side)
    conditions = {
        name: with_values(one, {"folder": write(folder.with_name(f"{folder.name}-{name}"), count, side)})
        for name, one in settings.image_sets()[0].settings.conditions.items()
    }
    captions = CaptionSettings(dropout=settings.captions.dropout)
    values = {"path": folder, "sets": (), "format": "image-folder", "repeats": 1.0, "captions": captions}
    values |= {"conditions": conditions}
    return with_values(settings, values)


def write(folder: Path, count: int, side: int) -> Path:
    """Writes images of side × side pixels and their captions atomically, unless the folder exists. Each image is 8×8
    random colours, enlarged, the same on every machine. Raises StorageError."""
    if folder.is_dir():
        return folder
    with durable.storage_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with durable.replacing(folder, durably=False) as temporary:
        temporary.mkdir()
        for number in range(count):
            colours = np.frombuffer(hashlib.shake_256(b"%d" % number).digest(8 * 8 * 3), np.uint8).reshape(8, 8, 3)
            image = Image.fromarray(colours).resize((side, side), Image.Resampling.BILINEAR)
            image.save(temporary / f"{number:05d}.png", compress_level=1)
            (temporary / f"{number:05d}.txt").write_text(f"synthetic image number {number}\n", "utf-8")
    return folder
