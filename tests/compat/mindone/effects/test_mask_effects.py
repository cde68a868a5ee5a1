"""Rows of masks for images in MindONE's tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.mask_cases import red_of, require_masks

Make = Callable[..., Any]


def as_mindone(folder: Path) -> dict[str, Any]:
    (folder / "000-masklabel.png").write_bytes(red_of(folder / "000.png"))
    (folder / "table.csv").write_text("dir,text\n000.png,one\n001.png,two\n")
    return {"format": "mindone"}


# breaks if the format loses its masks, assigns them to another image, or trains them as images
@pytest.mark.effect("data.mask.source")
def test_masks_are_read_with_a_mindone_table(feed: Make, noisy: Make, tmp_path: Path) -> None:
    require_masks(as_mindone, feed, noisy, tmp_path)
