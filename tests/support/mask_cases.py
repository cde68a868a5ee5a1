"""Masks equal to the red channel of their images, to show that both get the same crop and flip."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

Make = Callable[..., Any]


def red_of(path: Path) -> bytes:
    """A mask that is the red of its image, as a file's bytes."""
    content = io.BytesIO()
    Image.open(path).getchannel("R").save(content, "PNG")
    return content.getvalue()


def red(batch: Any) -> torch.Tensor:
    return ((batch.pixels[:, 0] + 1) * 127.5).round().to(torch.uint8)


def require_masks(kind: Any, feed: Make, noisy: Make, tmp_path: Path) -> None:
    """Masks come with the images of a format. kind: makes a folder of images one of it, and says its settings."""
    folder = noisy(tmp_path / "own", [(40, 32), (32, 48)])
    original = Image.open(folder / "000.png").convert("RGB")
    settings = {"crop": "random", "flip": 0.5, "buckets__shape": "square", "steps": 4, "mask__source": "files"}
    fed = feed(folder, **settings | kind(folder))
    seen = set()
    for batch in fed.batches():
        for mask, channel in zip(batch.mask, red(batch), strict=True):
            has = not bool((mask == 255).all())
            assert torch.equal(mask, channel) if has else True
            seen.add(has)
    assert seen == {True, False}
    assert original.size == (40, 32)
    assert len(fed.catalogue) == 2
    feed(
        folder, **settings | {"format": fed.recipe.data.format}
    )  # the index is there, and so are masks that lay inside a table


def require_clip_masks(kind: Any, feed: Make, write_clip: Make, tmp_path: Path) -> None:
    """A clip has one mask for all its frames. kind: as for images, of two clips and a mask."""
    folder = tmp_path / "films"
    folder.mkdir()
    for name in "ab":
        write_clip(folder / f"{name}.mp4", 6, size=(48, 32))
    pixels = np.zeros((32, 48), np.uint8)
    pixels[:16, :24] = 255  # where its frames are white
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    settings = kind(folder, content.getvalue())
    path = settings.pop("path", folder)
    fed = feed(
        path, **settings, mask__source="files", crop="random", flip=0.5, buckets__shape="square", clips__frames=5,
        steps=4, max_skipped=1.0,
    )  # fmt: skip
    cuts = set()
    for batch in fed.batches():
        for key, mask, frames in zip(batch.keys, batch.mask, batch.pixels, strict=True):
            assert mask.shape == (32, 32)
            if "a.mp4" in key:
                for frame in frames[0].unbind(0):
                    assert torch.equal(mask > 127, frame > 0.9)
                cuts.add(mask.numpy().tobytes())
            else:
                assert (mask == 255).all()
    assert len(cuts) > 1, "another cut from visit to visit"
