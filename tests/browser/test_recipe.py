"""The page Recipe in a browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.board.acting import actions, recipe_pages
from mezzotint.settings.reading.read import read
from support.board_runs import opened, wait

COMMAND = "document.getElementById('command').textContent"


@pytest.mark.slow
def test_form_is_filled_in_and_saved(open_page: Callable[..., Any], folders: Path, shots: Any, axe: Any) -> None:
    place = folders.parent / "recipes"
    place.mkdir()
    with opened(place) as board:
        page = open_page(board).go("/recipe?base=tiny_cpu")
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
        page.wait_for_selector("#toast:has-text('Saved as')")
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


@pytest.mark.slow
def test_check_shows_its_verdict_first_and_keeps_its_columns(
    open_page: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = {"where": "model.path", "what": "none is not there", "code": "E1401", "line": None}
    report = {"status": 2, "verdict": "This recipe cannot run.", "problems": [problem], "text": f"a{' ' * 200}b\nc"}
    monkeypatch.setattr(recipe_pages, "_run_check", lambda line, folder: report)
    with opened(tmp_path) as board:
        page = open_page(board).go("/recipe?base=tiny_cpu")
        wait(page, f"{COMMAND} === 'mezzotint train tiny_cpu'")
        page.click("#check")
        page.wait_for_selector("#verdict:has-text('This recipe cannot run.')")
        assert page.locator("[data-path='model.path'] .wrong").inner_text() == "E1401 none is not there"
        output = page.locator("#checked")
        assert page.locator("#verdict").bounding_box()["y"] < output.bounding_box()["y"]
        assert output.evaluate("one => one.scrollWidth > one.clientWidth"), "a long line is not wrapped"
        page.fill("[id='f-data.path']", "nothing")
        page.wait_for_selector("[data-path='data.path'] .wrong:has-text('nothing does not exist')")
        assert not page.is_visible("#verdict"), "the verdict was about the unchanged form"
        assert not page.is_visible("#checked")


@pytest.mark.slow
def test_started_run_opens_its_page(
    open_page: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import pathlib, time\nprint('reading', flush=True)\nwhile not pathlib.Path('go').exists(): time.sleep(0.02)"
    begin = subprocess.Popen
    monkeypatch.setattr(
        actions.subprocess, "Popen",
        lambda line, **how: begin([sys.executable, "-S", "-c", f"{code}\nraise SystemExit('no data')"], **how),
    )  # fmt: skip
    monkeypatch.setattr(actions, "EARLY_EXIT_SECONDS", 0.0)
    with opened(tmp_path) as board:
        page = open_page(board).go("/recipe?base=tiny_cpu&set=run.name=mine")
        wait(page, f"{COMMAND}.includes('run.name=mine')")
        page.click("#start")
        page.wait_for_url("**/run?run=0%2Fruns%2Fmine")
        page.wait_for_selector(".state.starting")
        page.wait_for_selector("#p-output:has-text('reading')")
        (tmp_path / "go").touch()
        page.wait_for_selector(".state.failed")
        page.wait_for_selector("#p-output:has-text('no data')")


@pytest.mark.slow
def test_search_names_the_setting_that_another_trainer_calls_otherwise(open_page: Callable[..., Any]) -> None:
    page = open_page().go("/recipe?base=sdxl-lora")
    page.fill("#find", "network_dim")
    page.wait_for_selector("#best:has-text('network_dim of kohya')")
    assert page.locator(".field:visible").count() == 1
    page.click("#best a")
    assert page.evaluate("document.activeElement.id") == "f-model.adapter.rank"
    page.fill("#find", "learning rate")
    page.wait_for_selector("#best a:has-text('optim.lr') >> nth=0")
    page.fill("#find", "")
    page.wait_for_selector("#best", state="hidden")
