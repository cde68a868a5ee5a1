"""Rows of `data.format` for EveryDream2's folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mezzotint.data.schedule import placement
from mezzotint.data.schedule.plan import Visit
from mezzotint.shapes import Size

Make = Callable[..., Any]


def captioned(folder: Path, *captions: str) -> Path:
    """An image for each caption."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, caption in enumerate(captions):
        Image.new("RGB", (32, 32), (i, 5, 5)).save(folder / f"{i}.png")
        (folder / f"{i}.txt").write_text(caption)
    return folder


# breaks if an image's own probabilities are ignored, or applied to others
@pytest.mark.effect("data.format")
def test_everydream_images_have_their_own_probabilities(feed: Make, tmp_path: Path) -> None:
    folder = captioned(tmp_path / "one", "a", "b, one, two")
    (folder / "0.yaml").write_text("cond_dropout: 1\nflip_p: 1\nloss_scale: 0.25")
    (folder / "1.yaml").write_text("shuffle_tags: true\ncond_dropout: 0")
    fed = feed(folder, format="everydream", captions__dropout=0.5, batch_size=1, steps=60)
    seen: dict[str, set[str]] = {"0.png": set(), "1.png": set()}
    for batch in fed.batches():
        seen[batch.keys[0]].add(batch.captions[0])
        assert batch.weight.item() == (0.25 if batch.keys[0] == "0.png" else 1.0)
    assert seen == {"0.png": {""}, "1.png": {"b, one, two", "b, two, one"}}
    placed = [placement.at_visit(fed.catalogue, Visit(row, 1, 0, 0, 0), Size(32, 32), fed.recipe.data)
              for row in (0, 1)]  # fmt: skip
    assert [p.flipped for p in placed] == [True, False]
