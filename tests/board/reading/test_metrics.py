"""Metrics of a run, read while it trains."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.board.reading import metrics
from mezzotint.board.reading.metrics import RunMetrics
from support.board_runs import line


def test_lines_are_read_once_and_a_torn_line_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reader = RunMetrics(path)
    assert not reader.follow()
    path.write_text(line(1) + line(2, loss="nan") + '{"torn\n' + line(3)[:40])
    assert not reader.follow()
    assert reader.table.curve("loss", "step")[0].tolist() == [1, 2]
    with open(path, "a") as file:
        file.write(line(3)[40:] + json.dumps({"step": 3, "val/loss": 0.5}) + "\n")
    reader.follow()
    x, y = reader.table.curve("loss", "step")
    assert x.tolist() == [1, 2, 3]
    assert np.isnan(y[1])
    assert reader.table.curve("val/loss", "samples")[0].tolist() == [12]
    assert reader.table.curve("loss", "time")[0].tolist() == pytest.approx([0.2, 0.4, 0.6])


def test_metrics_truncated_by_a_resume_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(step) for step in range(1, 30)))
    reader = RunMetrics(path)
    reader.follow()
    path.write_text("".join(line(step, loss=7.0) for step in range(1, 11)))
    reader.follow()
    x, y = reader.table.curve("loss", "step")
    assert x.tolist() == list(range(1, 11))
    assert set(y.tolist()) == {7.0}


def test_deleted_file_keeps_the_values_read(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line(1))
    reader = RunMetrics(path)
    reader.follow()
    path.unlink()
    assert not reader.follow()
    assert reader.table.curve("loss", "step")[0].tolist() == [1]


@pytest.mark.parametrize("text", ["[]\n", '{"step": "x", "loss": 1}\n', '{"step": true}\n', "{" * 5000 + "\n", "\0\n"])
def test_invalid_lines_are_ignored(text: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(text + line(5))
    reader = RunMetrics(path)
    reader.follow()
    assert reader.table.curve("loss", "step")[0].tolist() == [5]


def test_reading_does_not_block_on_a_pipe(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "metrics.jsonl")
    assert not RunMetrics(tmp_path / "metrics.jsonl").follow()


def test_long_file_is_sampled_first_and_then_read_completely(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_LONG", 100_000)
    monkeypatch.setattr(metrics, "BLOCK", 50_000)
    monkeypatch.setattr(metrics, "_SKETCHED", 40)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(line(step) for step in range(1, 1001)))
    read: list[int] = []
    reader = RunMetrics(path)
    assert reader.follow()
    sketch = reader.table
    assert sketch.is_estimated
    x, _ = sketch.curve("loss", "step")
    assert 40 <= len(x) <= 90
    assert (x[0], x[-1]) == (1, 1000)
    assert sketch.curve("loss", "time")[0][-1] == pytest.approx(200, rel=0.02)
    while reader.follow():
        read.append(1)
    assert len(read) >= 3
    assert reader.table.curve("loss", "step")[0].tolist() == list(range(1, 1001))


@pytest.mark.timing
def test_run_of_a_million_steps_opens_within_a_second(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with open(path, "w") as file:
        file.writelines(line(step) for step in range(1, 1_000_001))
    begun = time.perf_counter()
    reader = RunMetrics(path)
    reader.follow()
    from mezzotint.board.curves import charts

    answer: dict[str, Any] = charts(reader, tmp_path, axis="step", width=1200)
    took = time.perf_counter() - begun
    assert answer["charts"][0]["series"][0]["x"][-1] == 1_000_000
    assert took < 1.0
