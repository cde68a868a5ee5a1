"""Buttons that act on a running training."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.run_folder import RunFolder
from support.board_runs import opened, wait


@pytest.mark.slow
def test_buttons_sample_save_and_stop_a_running_training(
    world: Any, tmp_path: Path, open_page: Callable[..., Any], shots: Any
) -> None:
    child = world.fork(
        "live", run__steps=5000, run__save__every=None, run__preview__every="4000 steps", sample__steps=1,
        sample__prompts=["a fox"], run__save__asynchronous=False,
    )  # fmt: skip
    folder = RunFolder(tmp_path / "live")
    ended = False
    try:
        with opened(tmp_path) as board:
            page = open_page(board).go("/")
            page.wait_for_selector("a:text-is('live')", timeout=30_000)
            page.click("a:text-is('live')")
            page.wait_for_selector("button[data-act=draw]", timeout=20_000)
            points = "Number(document.getElementById('charts').dataset.points || 0)"
            wait(page, f"{points} > 2")
            seen = page.evaluate(points)
            wait(page, f"{points} > {seen}")
            page.click("button[data-act=draw]")
            wait(page, "document.querySelector('#previews output')?.textContent.includes('of 2')")
            page.click("button[data-act=save]")
            page.wait_for_selector("#p-stored tbody tr")
            page.click("button[data-act=stop]")
            page.wait_for_selector("#facts .state.stopped")
            page.wait_for_selector("button[data-act=go]")
        assert world.wait(child) == 143
        ended = True
    finally:
        if not ended:
            os.kill(child, 9)
            world.wait(child)
    assert folder.events()[-1]["event"] == "stopped"
    assert len(list(folder.checkpoints.glob("step-*"))) == 2
