"""The page Recipe, in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from board_runs import opened, wait

from mezzotint.recipe.reading.read import read

COMMAND = "document.getElementById('command').textContent"


@pytest.mark.slow
def test_a_form_is_filled_in_and_saved(looking: Callable[..., Any], folders: Path, shots: Any, axe: Any) -> None:
    place = folders.parent / "recipes"
    place.mkdir()
    with opened(place) as board:
        page = looking(board).go("/recipe?base=tiny_cpu")
        wait(page, f"{COMMAND} === 'mezzotint train tiny_cpu'")
        page.fill("[id='f-optim.lr']", "fast")
        page.wait_for_selector("[data-path='optim.lr'] .wrong:has-text('E1002')")
        assert page.locator("#problems").inner_text() == "optim.lr E1002 must be a number, got 'fast'"
        page.evaluate("document.getElementById('f-optim.lr').scrollIntoView({block: 'center', behavior: 'instant'})")
        shots(page, "recipe")
        page.fill("#find", "no such setting")
        page.click("#problems a")
        assert page.evaluate("document.activeElement.id") == "f-optim.lr"
        page.fill("[id='f-optim.lr']", "0,001")
        page.fill("[id='f-data.batch_size']", "2")
        wait(page, f"{COMMAND}.includes('data.batch_size=2')")
        assert page.locator("#problems").inner_text() == ""
        assert page.locator(".field.changed").count() == 2
        page.fill("#find", "mirrored left to right")
        assert page.locator(".field:visible").count() == 1
        page.fill("#find", "")
        address = page.url
        page.reload()
        wait(page, f"{COMMAND}.includes('data.batch_size=2')")
        assert page.url == address
        assert page.input_value("[id='f-data.batch_size']") == "2"
        page.fill("#file", "mine.yaml")
        page.click("#save")
        page.wait_for_selector("#said:has-text('Saved as')")
        saved = page.locator("#saved a").get_attribute("href")
        page.fill("#line", "--pretrained_model_name_or_path=m --train_data_dir=photos")
        page.select_option("#dialect", "diffusers-sd")
        page.click("#translate")
        page.click("text=Use this recipe")
        wait(page, "document.getElementById('yaml').textContent.includes('photos')")
        assert axe(page) == []
        page.goto(board.address + saved)
        assert page.input_value("[id='f-data.batch_size']") == "2"
        wait(page, f"{COMMAND}.endsWith('/mine.yaml')")
    assert read(place / "mine.yaml").recipe.data.batch_size == 2
