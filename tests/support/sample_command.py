"""A tiny model with its weights, and images that `mezzotint sample` generates from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mezzotint.sampling import image_files
from mezzotint.tasks.sample import sample as verb

FOLDER = Path(__file__).parents[1] / "parity" / "data" / "diffusers" / "tiny_sd"
QUICK = ("--size=32x32", "--steps=2", "--guidance=1", "run.device=cpu")


def drawn(out: Path) -> dict[str, Any]:
    """Pixels and text of every image of a folder by name, contact sheets apart."""
    images_by_name = {}
    for path in sorted(out.glob("*.png")):
        if not path.name.startswith("contact"):
            with Image.open(path) as image:
                images_by_name[path.name] = (np.asarray(image), image_files.read_record(image))
    return images_by_name


def draw(out: Path, *words: str, place: Path | str = FOLDER) -> dict[str, Any]:
    assert verb.run([str(place), *QUICK, f"--out={out}", *words]) == 0
    return drawn(out)
