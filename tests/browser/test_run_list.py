"""Search, order, tags, notes, archive and trash in a browser; the run page on a phone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mezzotint.board.reading import notes
from support.board_runs import SCRIPT, Board, opened, wait, write_run

HOSTILE = SCRIPT.replace("/", "|")
SHOWN = (
    "[...document.querySelectorAll('table.runs tbody tr:not([hidden]) th > a')].map((one) => one.textContent).join()"
)


@pytest.fixture
def populated(tmp_path: Path) -> Iterator[Board]:
    for number, (name, family) in enumerate([("fox", "sdxl"), ("owl", "flux"), ("run 10", "sd"), ("run 9", "sd")]):
        write_run(tmp_path / name, steps=60 + number, of=500, recipe={"model": {"family": family}})
    write_run(tmp_path / HOSTILE, steps=3)
    with opened(tmp_path) as board:
        yield board


def test_runs_are_searched_tagged_archived_and_deleted(
    open_page: Callable[..., Any], populated: Board, tmp_path: Path, axe: Any
) -> None:
    page = open_page(populated).go("/?find=run&sort=name")
    assert page.evaluate(SHOWN) == "run 9,run 10"
    assert "2 of 5 runs" in page.inner_text("#count")
    page.check("#all")
    page.fill("#find", "")
    page.fill("#new-tag", "<b>keep</b>")
    page.press("#new-tag", "Enter")
    page.wait_for_selector("tr[data-name='0/run 9'] a.tag")
    wait(page, "!document.querySelector('table.runs tbody input:checked')")
    assert page.locator("a.tag").all_inner_texts() == ["<b>keep</b>"] * 2
    page.locator("a.tag").first.click()
    assert page.evaluate(SHOWN) == "run 9,run 10"
    page.click("button.sort[data-sort=step]")
    page.check("input[value='0/run 9']")
    page.click("#changes [data-archive=true]")
    wait(page, f"{SHOWN} === 'run 10'")
    address = page.url
    for part in ("tag=%3Cb%3Ekeep", "sort=step"):
        assert part in address
    page.reload()
    assert page.evaluate(SHOWN) == "run 10"
    page.select_option("#show", "archived")
    assert page.evaluate(SHOWN) == "run 9"
    page.select_option("#show", "")
    page.select_option("#tag", "")
    assert axe(page) == []
    page.focus(f"input[value='0/{HOSTILE}']")
    page.keyboard.press("Space")
    page.focus("#delete")
    page.keyboard.press("Enter")
    wait(page, "document.getElementById('count').textContent === '3 of 4 runs'")
    assert (tmp_path / "trash" / HOSTILE / "metrics.jsonl").is_file()
    page = open_page(populated, width=360, color_scheme="dark").go("/trash")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert axe(page) == []
    page.focus("#trash button[value]")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=The trash is empty")
    assert (tmp_path / HOSTILE / "metrics.jsonl").is_file()


@pytest.mark.slow
def test_two_browsers_see_and_keep_each_others_changes(
    open_page: Callable[..., Any], populated: Board, tmp_path: Path
) -> None:
    """A text that one has saved is shown to the other before it is replaced."""
    looks = open_page(populated), open_page(populated, width=1000), open_page(populated, width=1100)
    one, two = (look.go("/run?run=0/fox") for look in looks[:2])
    listed = looks[2].go("/?find=zebra")
    assert listed.evaluate(SHOWN) == ""
    two.fill("#edit-notes textarea", "from two")
    one.fill("#edit-notes textarea", f"a zebra {SCRIPT}")
    one.fill("#edit-notes [name=tags]", "first")
    one.click("#edit-notes button")
    wait(listed, f"{SHOWN} === 'fox'")
    two.wait_for_selector("#facts a.tag:text-is('first')")
    assert two.input_value("#edit-notes textarea") == "from two", "unsaved text is not replaced by an update"
    two.fill("#edit-notes [name=tags]", "second")
    two.click("#edit-notes button")
    two.wait_for_selector("#other-notes:has-text('a zebra <script>')")
    assert notes.read_notes(tmp_path / "fox") == notes.RunNotes(("first",), f"a zebra {SCRIPT}")
    two.click("#edit-notes button:text-is('Save')")
    wait(one, "document.querySelector('#edit-notes textarea').value === 'from two'")
    assert notes.read_notes(tmp_path / "fox") == notes.RunNotes(("first", "second"), "from two")
    one.click("[data-run-action=delete]")
    one.wait_for_url("**/")
    wait(listed, "document.getElementById('count').textContent.includes('of 4')")
    two.click("[data-run-action=archive]")
    two.wait_for_selector("#toast:has-text('Not found')")
    assert notes.read_notes(tmp_path / "trash" / "fox").is_archived is False
    for look in looks:
        look.trouble[:] = [text for text in look.trouble if "404" not in text and "409" not in text]


@pytest.mark.slow
def test_phone_shows_the_first_curve_then_the_newest_previews(open_page: Callable[..., Any], populated: Board) -> None:
    page = open_page(populated, width=360).go("/run?run=0/fox")
    page.wait_for_selector("#charts canvas")
    image = page.locator("#previews img").first
    assert image.get_attribute("alt").endswith("step 60")
    assert image.bounding_box()["y"] < 1100
    assert page.locator("#charts figure:visible").count() == 1
    page.click("#all-curves")
    assert page.locator("#charts figure:visible").count() > 3
    width = page.evaluate("document.querySelector('#charts figure:last-child canvas').getBoundingClientRect().width")
    assert width > 200, "hidden curves have their size"


@pytest.mark.timing
def test_thousand_runs_are_searched_and_sorted_quickly(open_page: Callable[..., Any], tmp_path: Path) -> None:
    for number in range(1000):
        run = tmp_path / f"run-{number:04d}"
        (run / "checkpoints").mkdir(parents=True)
        (run / "recipe.yaml").write_text("schema: 1\nmodel:\n  family: sd\n")
        (run / "metrics.jsonl").write_text(f'{{"step": {number}, "loss": {1 / (number + 1)}}}\n')
    with opened(tmp_path) as board:
        begun = time.perf_counter()
        page = open_page(board).go("/")
        wait(page, "document.getElementById('count').textContent === '1000 runs'", seconds=30)
        print(f"open: {time.perf_counter() - begun:.2f} s")
        find = "document.getElementById('find')"
        for words in (
            f"{find}.value = '99'; {find}.dispatchEvent(new Event('input'))",
            f"{find}.value = ''; {find}.dispatchEvent(new Event('input'))",
            "document.querySelector('[data-sort=loss]').click()",
        ):
            took = page.evaluate(
                f"() => {{ const begun = performance.now(); {words}; document.body.offsetHeight; "
                "return performance.now() - begun; }"
            )
            print(f"{words}: {took:.0f} ms")
            assert took < 1000, words
        assert page.evaluate(SHOWN).startswith("run-0999,run-0998")
