"""Images with flaws that the doctor must find, and its findings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Document = dict[str, Any]
Ask = Callable[..., tuple[int, str]]
"""Of a folder and words: exit status and output."""


def scene(seed: int, size: tuple[int, int] = (64, 64)) -> Image.Image:
    """An image of soft blots."""
    blots = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), np.uint8)
    return Image.fromarray(blots).resize(size, Image.Resampling.BICUBIC)


def put(folder: Path, name: str, image: Image.Image, caption: str | None, **how: Any) -> None:
    """Saves an image, with a caption beside it. how: of the file's form."""
    image.save(folder / name, **how)
    if caption is not None:
        (folder / name).with_suffix(".txt").write_text(caption)


def findings_in(text: str) -> dict[str, Document]:
    """Of the JSON document, by name."""
    return {finding["name"]: finding for finding in json.loads(text)["findings"]}


def names(finding: Document) -> list[str]:
    """The first word of each example."""
    return sorted(example.split()[0].rstrip(":") for example in finding["examples"])
