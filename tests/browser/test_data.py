"""The page Data in a browser."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.assets import DATA
from mezzotint.board.reading import token_counts
from support.board_runs import opened, wait, write_images, write_run


@pytest.mark.slow
def test_shipped_data_set_is_shown(
    open_page: Callable[..., Any], folders: Path, tmp_path: Path, shots: Any, axe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_counts, "of_run", lambda run: token_counts.count(str(run / "recipe.yaml")))
    images = shutil.copytree(DATA / "shapes", folders.parent / "shapes")
    data = {
        "path": [str(images)], "resolution": 48, "buckets": {"step": 16}, "cache": {"path": str(tmp_path / "cache")},
    }  # fmt: skip
    write_run(tmp_path / "shapes", recipe={"data": data, "run": {"name": "shapes"}})
    with opened(tmp_path, images) as board:
        page = open_page(board).go("/data")
        page.click("a:text-is('shapes')")
        page.wait_for_selector("text=12 of 12 samples")
        wait(page, "[...document.querySelectorAll('.whole img')].every(one => one.naturalWidth > 10)")
        lengths = "document.getElementById('histograms').textContent"
        wait(page, f"{lengths}.includes('tokens of the first caption')", seconds=120)
        assert page.locator(".crop").count() == 12
        assert axe(page) == []
        shots(page, "data")


@pytest.mark.slow
def test_images_are_framed_and_filtered(open_page: Callable[..., Any], tmp_path: Path, axe: Any) -> None:
    write_images(tmp_path / "images")
    data = {
        "path": [str(tmp_path / "images")], "resolution": 48, "buckets": {"step": 16}, "max_skipped": 0.5,
        "cache": {"path": str(tmp_path / "cache")},
    }  # fmt: skip
    write_run(tmp_path / "run", recipe={"data": data, "run": {"name": "a"}})
    with opened(tmp_path) as board:
        page = open_page(board).go("/data")
        page.click("a:text-is('run')")
        page.wait_for_selector(".sample .crop", state="attached")
        wait(page, "[...document.querySelectorAll('.whole img')].every(one => one.naturalWidth > 10)")
        box, image = page.locator(".crop").first.bounding_box(), page.locator(".whole img").first.bounding_box()
        assert box["width"] < image["width"] or box["height"] < image["height"]
        assert axe(page) == []
        lengths = "document.getElementById('histograms').textContent"
        wait(page, f"{lengths}.includes('tokens of the first caption')", seconds=120)  # counted in a separate process
        assert "over 77, cut" in page.locator("#histograms").inner_text()
        page.fill("input[name=text]", "image 1")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=1 of 6 samples")
        assert "<script>window.hit=1" in page.locator(".sample .caption").inner_text()
