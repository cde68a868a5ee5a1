"""EveryDream2's data with `check`, `cache` and `train`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support import supported_table
from support.supported_table import CAPTIONS, draw, require_checked_cached_and_trained

here = supported_table.here


def everydream(folder: Path, *, by_list: bool = False) -> str:
    draw(folder, *CAPTIONS)
    (folder / "global.yaml").write_text("loss_scale: 0.5\n")
    (folder / "multiply.txt").write_text("1.5")
    if by_list:
        entries = [{"image": f"{caption}.png", "caption": caption} for caption in CAPTIONS]
        (folder / "list.json").write_text(json.dumps(entries))
        return "data.path=data/list.json"
    return "data.path=data"


@pytest.mark.slow
@pytest.mark.parametrize("by_list", [False, True], ids=["folder", "manifest"])
def test_everydream_data_are_checked_cached_and_trained(
    by_list: bool, here: Path, shallow_sd: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = [everydream(here / "data", by_list=by_list), "data.format=everydream", "data.flip=0"]
    require_checked_cached_and_trained(shallow_sd, data, capsys, is_whole=not by_list)
