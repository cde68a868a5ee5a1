"""Edits on the page Data in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from support.board_runs import SCRIPT, Board, opened, wait
from support.image_catalogues import paint

DATA = "/data?folder=0/photos&resolution=64"

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paint(tmp_path / "photos", 6, size=(320, 240))
    (tmp_path / "photos" / "001.txt").write_text(SCRIPT)
    return tmp_path / "photos"


@pytest.fixture
def own(root: Path, tmp_path: Path) -> Iterator[Board]:
    with opened(tmp_path) as board:
        yield board


def go(browser_page: Any) -> Any:
    page = browser_page.go(DATA)
    page.wait_for_selector("text=6 of 6 samples")
    page.wait_for_load_state("load")
    return page


def texts(root: Path) -> list[str]:
    return [path.read_text().strip() for path in sorted(root.glob("*.txt"))]


def test_tags_are_edited_undone_and_redone_by_keyboard(
    open_page: Callable[..., Any], own: Board, root: Path, axe: Any
) -> None:
    before = texts(root)
    page = go(open_page(own))
    page.focus(".pick >> nth=0")
    page.keyboard.press("Space")
    page.focus(".pick >> nth=2")
    page.keyboard.press("Space")
    assert page.locator("#selected").inner_text() == "2 images are selected."
    page.focus("#operation [name=tag]")
    page.keyboard.type(SCRIPT)
    page.keyboard.press("Enter")
    page.wait_for_selector("#preview >> text=2 of the selected images change")
    assert texts(root) == before
    page.keyboard.press("Enter")  # the button that makes the change has the focus
    page.wait_for_selector("text=Saved (2 files)")
    after = [f"image 0, {SCRIPT}", SCRIPT, f"image 2, {SCRIPT}", *before[3:]]
    assert texts(root) == after
    page.wait_for_selector("#undo:has-text('Undo: add the tag')")
    page.focus("#tags summary")
    page.keyboard.press("Enter")
    page.focus("#history summary")
    page.keyboard.press("Enter")
    page.wait_for_selector("#history li")
    page.wait_for_selector("#tags [data-tag]")
    assert axe(page) == []
    page.keyboard.press("Control+z")
    page.wait_for_selector("text=Undone: add the tag")
    assert texts(root) == before
    page.wait_for_selector("#redo:has-text('Redo: add the tag')")
    page.keyboard.press("Control+Shift+z")
    page.wait_for_selector("text=Made again: add the tag")
    assert texts(root) == after


def test_image_is_cropped_painted_and_captioned(
    open_page: Callable[..., Any], own: Board, root: Path, axe: Any
) -> None:
    page = go(open_page(own))
    page.click(".edit >> nth=3")
    page.wait_for_selector("#editor[open]")
    page.fill("#editor-caption", "first line\nsecond, line")
    page.click("#save-caption")
    page.wait_for_selector("text=Saved (1 file)")
    assert (root / "003.txt").read_text() == "first line\nsecond, line"
    box = page.locator("#overlay").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 4)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 3 / 4, box["y"] + box["height"], steps=4)
    page.mouse.up()
    page.select_option("#rotate", "90")
    page.click("#save-region")
    wait(page, "document.getElementById('undo').textContent.startsWith('Undo: crop and rotate')")
    line = json.loads((root / "mezzotint.jsonl").read_text())
    assert (line["file"], line["rotate"]) == ("003.png", 90)
    assert np.allclose(line["crop"], [0.25, 0.25, 0.75, 1], atol=0.02)
    page.check("[name=tool][value=ignore]")
    page.focus("#overlay")
    for key in ("ArrowUp", "Space", "ArrowUp", "Space"):
        page.keyboard.press(key)
    assert axe(page) == []
    page.click("#save-mask")
    wait(page, "document.getElementById('undo').textContent.startsWith('Undo: mask of')")
    with Image.open(root / "003-masklabel.png") as mask:
        assert mask.size == (320, 240)
        assert mask.getpixel((240, 220)) == 0  # above where the pointer was
        assert mask.getpixel((10, 10)) == 255
    page.click("#editor-next")
    wait(page, "document.getElementById('editor-name').textContent === '004.png'")
    page.fill("#editor-caption", "not saved")
    page.once("dialog", lambda dialog: dialog.dismiss())
    page.keyboard.press("Escape")
    assert page.locator("#editor[open]").count() == 1, "it asks before a change is lost"
    page.fill("#editor-caption", "image 4")
    page.click("#editor-close")
    wait(page, "document.activeElement.value === '004.png'")


def test_second_browser_is_told_that_its_page_is_old(open_page: Callable[..., Any], own: Board, root: Path) -> None:
    pages = [open_page(own), open_page(own, width=1281)]
    mine, theirs = map(go, pages)
    for page in (mine, theirs):
        page.click(".edit >> nth=0")
        page.wait_for_selector("#editor[open]")
    theirs.fill("#editor-caption", "theirs")
    theirs.click("#save-caption")
    theirs.wait_for_selector("text=Saved (1 file)")
    mine.fill("#editor-caption", "mine")
    mine.click("#save-caption")
    mine.wait_for_selector("#toast >> text=reload the page and repeat the change")
    assert texts(root)[0] == "theirs"
    assert mine.input_value("#editor-caption") == "mine", "what was typed is still there"
    pages[0].trouble = [one for one in pages[0].trouble if "409" not in one]


def test_captions_of_a_program_are_reviewed_one_after_the_other(
    open_page: Callable[..., Any], own: Board, root: Path
) -> None:
    lines = [json.dumps({"file": f"00{i}.png", "review": True}) for i in (2, 4)]
    (root / "mezzotint.jsonl").write_text("\n".join(lines) + "\n")
    page = open_page(own).go(f"{DATA}&problem=review")
    page.wait_for_selector("text=2 of 6 samples")
    page.wait_for_load_state("load")
    page.click(".edit >> nth=0")
    page.wait_for_selector("#editor[open]")
    page.fill("#editor-caption", "corrected")
    page.click("#accept")
    wait(page, "document.getElementById('editor-name').textContent === '004.png'")
    page.click("#accept")
    page.wait_for_selector("#editor", state="hidden")
    assert texts(root)[2] == "corrected"
    assert not (root / "mezzotint.jsonl").exists()


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_editing_fits_a_phone(open_page: Callable[..., Any], own: Board, scheme: str, axe: Any) -> None:
    page = go(open_page(own, width=360, color_scheme=scheme))
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.click(".edit >> nth=1")
    page.wait_for_selector("#editor[open]")
    assert page.evaluate(
        "document.getElementById('editor').scrollWidth <= document.getElementById('editor').clientWidth"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert axe(page) == []
