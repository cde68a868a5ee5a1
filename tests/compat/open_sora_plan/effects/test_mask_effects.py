"""Rows of masks of clips in Open-Sora-Plan's lists."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.mask_cases import require_clip_masks

Make = Callable[..., Any]


def as_film_list(folder: Path, mask: bytes) -> dict[str, Any]:
    (folder / "m.png").write_bytes(mask)
    entries = [{"path": "a.mp4", "cap": "a", "mask": "m.png"}, {"path": "b.mp4", "cap": "b"}]
    (folder / "list.json").write_text(json.dumps(entries))
    (folder / "list.txt").write_text(".,list.json\n")
    return {"format": "clip-list", "path": folder / "list.txt"}


# breaks if a clip's mask is not cropped or mirrored like its frames, or is assigned to another clip
@pytest.mark.effect("data.mask.source")
def test_listed_clip_has_one_mask_for_all_frames(feed: Make, write_clip: Make, tmp_path: Path) -> None:
    require_clip_masks(as_film_list, feed, write_clip, tmp_path)
