"""The page New run in a browser: from a folder of images to an adapter, without a terminal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from safetensors.torch import load_file

from mezzotint.assets import DATA
from mezzotint.board.acting import new_run_pages
from mezzotint.board.acting.new_run_pages import BackgroundCommand
from mezzotint.board.reading import candidates
from support.board_runs import SCRIPT, opened, wait

HOSTILE = "<img src=x onerror=window.hit=1>"
MINI = "#model option[value='shipped:mezzotint-mini']"


def write_photos(folder: Path, *, caption: str = "") -> Path:
    folder.mkdir(parents=True)
    for image in sorted((DATA / "shapes").glob("*.png")):
        (folder / image.name).write_bytes(image.read_bytes())
        if caption:
            (folder / image.with_suffix(".txt").name).write_text(caption)
    return folder


@pytest.fixture
def quick_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check` and `doctor` answer at once, with hostile text."""

    def run(command: BackgroundCommand, folder: Path) -> None:
        document = {
            "memory": {"peak": 140_000_000}, "fits": True, "problems": [],
            "findings": [{"status": "mend", "sentence": f"{SCRIPT} is broken", "advice": f"remove {HOSTILE}"}],
        }  # fmt: skip
        command.result = new_run_pages.subprocess.CompletedProcess(command.line, 0, json.dumps(document).encode(), b"")
        command.ended.set()

    monkeypatch.setattr(BackgroundCommand, "run", run)


@pytest.mark.slow
def test_folder_of_images_becomes_an_adapter(
    open_page: Callable[..., Any], folders: Path, axe: Any, shots: Any
) -> None:
    root = folders.parent / "photos"
    write_photos(root / "rex")
    with opened(root) as board:
        page = open_page(board).go("/")
        page.click("text=New run >> nth=0")
        page.wait_for_selector(MINI, state="attached")
        assert page.is_disabled("#start")
        page.wait_for_selector("#m-data:has-text('Choose the folder with your images.')")
        page.select_option("#data", "0/rex")
        page.wait_for_selector("#m-trigger:has-text('12 images have no caption')")
        page.fill("#trigger", "wug triangle")
        page.wait_for_selector("#rows .row")
        assert page.locator("#thumbs img").count() == 12
        wait(page, "[...document.querySelectorAll('#thumbs img')].every((one) => one.complete && one.naturalWidth)")
        assert page.input_value("[id='r-run.steps']") == "220"
        assert "triangle" in page.inner_text("dt:has-text('Preservation') + dd")
        page.wait_for_selector("#need:has-text('computed, not measured')", timeout=60_000)
        page.wait_for_selector("#findings.findings:not(.quiet)", timeout=60_000)
        assert axe(page) == []
        shots(page, "new")
        page.fill("[id='r-run.steps']", "4")
        page.wait_for_selector(".row.edited")
        page.wait_for_selector("dt:has-text('Previews') + dd:has-text('1 steps')")
        wait(page, "!document.getElementById('start').disabled")
        page.click("#start")
        page.wait_for_url("**/run?run=0%2Fruns%2Fwug-triangle")
        page.wait_for_selector(".state.finished", timeout=120_000)
        page.wait_for_selector("#p-stored:has-text('step-00000004')")
    adapters = sorted((root / "runs" / "wug-triangle" / "exports").glob("step-00000004/*.safetensors"))
    assert [one.name for one in adapters] == ["pytorch_lora_weights.safetensors", "wug-triangle.safetensors"]
    learned = load_file(adapters[1])
    assert any(tensor.any() for name, tensor in learned.items() if "lora_up" in name)


@pytest.mark.slow
def test_hostile_names_captions_and_findings_stay_text(
    open_page: Callable[..., Any], tmp_path: Path, quick_commands: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`open_page` fails if any of it ran, or the page asked another machine."""
    monkeypatch.setattr(candidates, "find_cards", lambda: [{"name": SCRIPT, "gb": 25}])
    root = tmp_path / "page"
    write_photos(root / HOSTILE, caption=SCRIPT)
    (root / HOSTILE / "00-red-circle.png").rename(root / HOSTILE / f"{HOSTILE}.png")
    (root / f"{HOSTILE}.safetensors").write_bytes(b"junk")
    (root / "model").mkdir()
    (root / "model" / "model_index.json").write_text(json.dumps({"_class_name": SCRIPT}))
    with opened(root) as board:
        page = open_page(board).go("/new")
        page.wait_for_selector(MINI, state="attached")
        assert page.input_value("#memory") == "25", "the card that is there"
        assert SCRIPT in page.inner_text("#a-memory")
        page.select_option("#data", f"0/{HOSTILE}")
        page.fill("#trigger", f"{SCRIPT} dog")
        page.wait_for_selector("#rows .row")
        page.wait_for_selector(f"#findings:has-text('{SCRIPT} is broken')")
        assert HOSTILE in page.inner_text("#findings")
        assert SCRIPT in page.inner_text("dt:has-text('Trigger word') + dd")
        assert SCRIPT in page.text_content("#model")
        page.click("#as-command summary")
        wait(page, f"document.getElementById('command').textContent.includes({json.dumps(HOSTILE)})")
        page.reload()
        page.wait_for_selector("#rows .row")
        assert page.input_value("#trigger") == f"{SCRIPT} dog", "the address keeps the choices"
        assert page.input_value("#data") == f"0/{HOSTILE}"
        page.click("#all")
        wait(page, "document.getElementById('yaml')?.textContent.includes('trigger')")
        assert page.input_value("[id='f-data.captions.trigger']") == f"{SCRIPT} dog"


@pytest.mark.slow
def test_keyboard_and_narrow_screens_do_all_of_it(
    open_page: Callable[..., Any], tmp_path: Path, quick_commands: None, axe: Any
) -> None:
    root = tmp_path / "page"
    write_photos(root / "rex", caption="a red triangle")
    with opened(root) as board:
        page = open_page(board, width=360, color_scheme="dark").go("/new")
        page.wait_for_selector(MINI, state="attached")
        page.focus("input[value=subject]")
        page.keyboard.press("ArrowDown")
        assert page.is_checked("input[value=style]")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "data"
        page.keyboard.type("rex")
        page.wait_for_selector("#rows .row")
        page.keyboard.press("Tab")
        page.keyboard.type("zwx")
        page.wait_for_selector("dd:has-text('{caption}, in the style of {trigger}')")
        page.select_option("#memory", "12")
        page.wait_for_selector("#m-memory:has-text('No card was found here')")
        assert page.is_disabled("#start"), "it cannot train here"
        page.click("#save")
        page.wait_for_selector("#done:has-text('Saved as')")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert axe(page) == []
        page.check("input[value=edit]")
        page.wait_for_selector("#m-before:has-text('before the edit')")
        assert not page.is_visible("#trigger")
    assert (root / "zwx.yaml").is_file()


@pytest.mark.slow
def test_ten_thousand_images_are_listed_and_shown_within_a_second(
    open_page: Callable[..., Any], tmp_path: Path, quick_commands: None
) -> None:
    folder = tmp_path / "page" / "all"
    folder.mkdir(parents=True)
    Image.new("RGB", (64, 64), "red").save(folder / "00000.png")
    content = (folder / "00000.png").read_bytes()
    for number in range(1, 10_000):
        (folder / f"{number:05d}.png").write_bytes(content)
    with opened(tmp_path / "page") as board:
        browser = open_page(board)
        browser.go("/queue")  # starts the browser and the server
        began = time.monotonic()
        page = browser.go("/new?data=0/all&trigger=zwx+dog")
        page.wait_for_selector("#data option[value='0/all']", state="attached")
        assert time.monotonic() - began < 1.0
        assert page.locator("#data option[value='0/all']").inner_text() == "all: 10,000 images, no captions"
        page.wait_for_selector("#thumbs img")
        assert page.inner_text("#thumbs span") == "and 9,988 more"
        page.wait_for_selector("dd:has-text('10,000 images × ')")
