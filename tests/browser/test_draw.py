"""The page Generate in a browser, with the small model that is shipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.board_runs import opened, wait


@pytest.mark.slow
def test_images_of_two_models_are_generated_side_by_side(
    open_page: Callable[..., Any], tmp_path: Path, shots: Any, axe: Any
) -> None:
    with opened(tmp_path) as board:
        look = open_page(board)
        page = look.go("/draw")
        wait(page, "document.getElementById('ready').textContent === 'ready'", seconds=120)
        page.fill("input[name=guidance]", "3,5")
        page.fill("input[name=steps]", "2")
        page.click("#go")
        wait(page, "document.querySelector('#drawn a img')?.naturalWidth > 0", seconds=120)
        line = "mezzotint sample mezzotint-mini '--prompt=a small red star in the top left' --steps=2 --guidance=3.5"
        assert page.locator("#drawn code").first.inner_text().startswith(line)
        image, card = (page.locator(one).first.bounding_box() for one in ("#drawn a img", "#drawn figure"))
        assert (image["width"], image["height"]) == (192, 192), "three times its size"
        assert card["width"] < 300
        page.fill("input[name=b]", "mezzotint-mini")
        page.click("#go")
        wait(page, "document.querySelectorAll('#drawn a img').length === 3", seconds=120)
        assert axe(page) == []
        shots(page, "draw")
        page.fill("input[name=a]", "nothing-there")
        page.click("#go")
        page.wait_for_selector("#toast:has-text('Not found')")
        look.trouble[:] = [one for one in look.trouble if "404" not in one]
