"""Rows of masks for images in EveryDream2's folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.mask_cases import red_of, require_masks

Make = Callable[..., Any]


def as_everydream(folder: Path) -> dict[str, Any]:
    (folder / "000-masklabel.png").write_bytes(red_of(folder / "000.png"))
    return {"format": "everydream"}


# breaks if the format loses its masks, assigns them to another image, or trains them as images
@pytest.mark.effect("data.mask.source")
def test_masks_are_read_from_an_everydream_folder(feed: Make, noisy: Make, tmp_path: Path) -> None:
    require_masks(as_everydream, feed, noisy, tmp_path)
