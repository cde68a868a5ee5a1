"""Runs with very many curves, checkpoints and previews: the page shows a limited number of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mezzotint.board.reading import images, metrics, runs
from support.board_runs import opened, write_image, write_run


def test_number_of_curves_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_TAGS", 3)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"step": step, "loss": 1, f"tag-{step}": 2}) + "\n" for step in range(1, 9)))
    read = metrics.RunMetrics(path)
    read.follow()
    assert sorted(read.table.rows) == ["loss", "tag-1", "tag-2"]
    assert len(read.table.curve("loss", "step")[0]) == 8


def test_only_the_newest_of_many_checkpoints_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "runs" / "one")
    for kind, name in (("checkpoints", "step-{:08d}"), ("exports", "step-{:08d}")):
        for step in range(1, 8):
            (folder / kind / name.format(step)).mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(runs, "MOST_STORED", 3)
    monkeypatch.setattr(runs, "_MOST_MARKS", 2)
    assert [one.step for one in runs.checkpoints(folder)] == [60, 7, 6]
    assert [one.step for one in runs.exports(folder)] == [7, 6, 5]
    assert [mark["step"] for mark in runs.marks([], folder) if mark["kind"] == "saved"] == [60, 7]
    with opened(tmp_path / "runs") as board:
        status, page = board.ask("/run?run=0/one")[:2]
    assert status == 200
    assert page.count("The newest 3 are listed.") == 2


def test_many_previews_are_shown_at_evenly_spaced_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_STEPS", 3)
    monkeypatch.setattr(images, "MOST_PROMPTS", 2)
    for step in range(0, 90, 10):
        folder = tmp_path / "samples" / f"step-{step:08d}"
        folder.mkdir(parents=True)
        for prompt in range(4):
            write_image(folder / f"{prompt:02d}-raw.png", "a fox")
    shown = images.previews(tmp_path)
    assert shown.steps == [0, 40, 80]
    assert sorted(shown.prompts) == [0, 1]
    assert len(shown.drawn) == 6
