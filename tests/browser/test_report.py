"""A report opened as a file in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mezzotint.cli import main
from support.board_runs import wait, write_run


@pytest.mark.slow
def test_report_shows_curves_and_images_offline(browser: Any, tmp_path: Path, axe: Any, write_clip: Any) -> None:
    write_run(tmp_path / "run", steps=400)
    write_clip(tmp_path / "run" / "samples" / "step-00000030" / "01-raw.mp4", 10)
    assert main(["report", str(tmp_path / "run"), f"--out={tmp_path / 'run.html'}"]) == 0
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    page, trouble = context.new_page(), []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: trouble.append(request.url) if request.url[:5] not in ("file:", "data:") else 0)
    page.goto((tmp_path / "run.html").as_uri())
    page.wait_for_selector("#charts canvas")
    assert page.locator("#charts figure").count() == 6
    page.select_option("#axis", "time")
    wait(page, "document.querySelectorAll('#charts canvas').length === 6")
    page.fill("#at-step", "0")
    assert page.locator("#previews img").first.get_attribute("alt").endswith("step 0")
    wait(page, "document.querySelector('#previews img').naturalWidth === 48")
    page.fill("#at-step", "1")
    assert page.locator("#previews video").count() == 0, "a clip is shown as its strip of frames"
    wait(page, "document.querySelector('#previews img').naturalWidth === 48")
    page.fill("#find", "peak learning rate")
    assert page.locator("table.settings tbody tr:visible").count() == 1
    assert axe(page) == []
    assert page.evaluate("window.hit") is None
    context.close()
    assert trouble == []
