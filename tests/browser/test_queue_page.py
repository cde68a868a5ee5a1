"""The page Queue in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.board.acting import recipe_pages
from mezzotint.tasks.queue.entries import Queue
from support.board_runs import opened, wait
from support.forked import run_python


@pytest.mark.slow
def test_queue_is_filled_ordered_and_followed(
    open_page: Callable[..., Any], tmp_path: Path, axe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        recipe_pages, "run_command", lambda line, folder: run_python(["python", "-m", "mezzotint", *line], cwd=folder)
    )
    queue = Queue(tmp_path / "queue")
    with opened(tmp_path) as board:
        page = open_page(board).go("/queue")
        assert "The queue is empty" in page.inner_text("#queue")
        for name in ("fox", "owl"):
            page = open_page(board).go(f"/recipe?base=mini&set=run.name={name}&set=data.path=shapes")
            wait(page, f"document.getElementById('command').textContent.includes('run.name={name}')")
            page.click("#enqueue")
            page.wait_for_selector("#saved a[href='/queue']", timeout=30_000)
        page.click("#saved a")
        page.wait_for_selector("tr[data-name=owl]")
        assert axe(page) == []
        order = "[...document.querySelectorAll('tr[data-name]')].map((one) => one.dataset.name).join()"
        assert page.evaluate(order) == "fox,owl"
        page.click("tr[data-name=owl] button[data-place=first]")
        wait(page, f"{order} === 'owl,fox'")
        assert [entry.name for entry in queue.entries()] == ["owl", "fox"]
        page.click("tr[data-name=fox] button[data-act=pause]")
        page.wait_for_selector("tr[data-name=fox] .state.paused")
        queue.record(queue.entry("owl"), "failed", "error[E1202]: no images")  # by a `queue run`
        page.wait_for_selector("tr[data-name=owl] .reason:has-text('E1202')")
        page.click("tr[data-name=owl] button[data-act=remove]")
        wait(page, f"{order} === 'fox'")
        assert (queue.folder / "removed" / "owl.yaml").is_file()
