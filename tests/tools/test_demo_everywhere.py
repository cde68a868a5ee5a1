"""The demonstration on many seeds and processors: it continues after a stop, and pages show the stored runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import demo
import demo_everywhere as everywhere
from mini import lesson, measure

PIXELS = np.zeros((64, 64, 3), np.uint8)


def row(seed: int, processor: str = "AVX2", threads: int = 1, shape: float = 1.0) -> dict[str, Any]:
    shares = {"shape": shape, "colour": 1.0, "position": 1.0, "all": shape}
    same = {"new": shares, "old": dict.fromkeys(shares, 1.0), "seconds": 90, "cpu_seconds": 88}
    return {"processor": processor, "capability": "AVX2", "threads": threads, "seed": seed, **same}


def test_stored_runs_are_distinct() -> None:
    rows = everywhere.stored()
    assert len({(row["processor"], row["threads"], row["seed"]) for row in rows}) == len(rows) > 0


def test_all_runs_are_stored() -> None:
    assert everywhere.missing(everywhere.stored()) == []


def test_stored_runs_reach_the_goals_of_the_demonstration() -> None:
    rows = everywhere.stored()
    for name in everywhere.COLUMNS:
        assert everywhere.worst(rows, "new", name) >= 0.90
        assert everywhere.worst(rows, "old", name) >= 0.97


def test_pages_show_the_stored_runs() -> None:
    for page in (everywhere.README, everywhere.PAGE):
        text = page.read_text("utf-8")
        assert everywhere.laid_in(text, everywhere.stored()) == text, "run: python tools/demo_everywhere.py pages"
        assert everywhere.laid_in(text, [row(0, shape=0.5)]) != text


def test_table_has_the_worst_and_the_median_run() -> None:
    rows = [row(seed, shape=shape) for seed, shape in enumerate((0.96, 0.91, 0.98))]
    table = everywhere.table(rows)
    assert "| AVX2 | 1 | 1 | 91% | 100% | 100% | 91% | 100% | 90 | 88 |" in table
    assert "| **worst** | | | 91% |" in table
    assert "| **usual** | | | 96% |" in table
    text = " ".join(everywhere.said(rows).split())
    assert "3 runs (3 seeds, 1 processor setting)" in text
    assert "position: 96% (worst run 91%); of 100 objects that it knew before: 100% (worst run 100%)" in text
    assert everywhere.said([]) == ""


def test_each_missing_run_is_a_process_with_its_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def start(words: Sequence[str], *, env: dict[str, str], check: bool) -> None:
        assert check, "a failure must end the run"
        started.append((words[-3:], env.get("ONEDNN_MAX_CPU_ISA"), env["OMP_NUM_THREADS"]))

    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(subprocess, "run", start)
    monkeypatch.setattr(everywhere, "SEEDS", (0, 1))
    for name in ("RESULTS", "README", "PAGE"):
        (tmp_path / name).write_text("")
        monkeypatch.setattr(everywhere, name, tmp_path / name)
    everywhere.keep([row(seed, "its own", 2) for seed in (0, 1)] + [row(0, "SSE4", 1)])
    assert everywhere.main([]) == 0
    assert started[:4] == [
        (["--processor=its own", "--threads=1", "--seed=0"], None, "1"),
        (["--processor=AVX2", "--threads=1", "--seed=0"], "AVX2", "1"),
        (["--processor=AVX2", "--threads=2", "--seed=0"], "AVX2", "2"),
        (["--processor=SSE4", "--threads=2", "--seed=0"], "SSE41", "2"),
    ]
    assert len(started) == 2 * 6 - 3


def test_only_successful_run_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = [4, 0, 0]

    def train(words: Sequence[str]) -> int:
        assert set(lesson.SETTINGS) < set(words)
        (place,) = (Path(word.removeprefix("run.folder=")) for word in words if word.startswith("run.folder="))
        (place / "exports" / "step-00000800-ema").mkdir(parents=True, exist_ok=True)
        return ends.pop(0)

    shares = dict.fromkeys(everywhere.COLUMNS, 1.0)
    monkeypatch.setattr("mezzotint.cli.main", train)
    monkeypatch.setattr(measure, "load", lambda model: None)
    monkeypatch.setattr(lesson, "write", lambda folder: (folder / "wugs", folder / "world"))
    monkeypatch.setattr(lesson, "examine", lambda family: lesson.Answers([PIXELS], [PIXELS], shares, shares))
    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)
    monkeypatch.setattr(everywhere, "RESULTS", tmp_path / "runs.json")
    monkeypatch.setattr(everywhere, "HERE", tmp_path / "runs")
    assert everywhere.run_one("AVX2", 1, 1) == 4
    assert everywhere.stored() == []
    assert (tmp_path / "runs" / "AVX2-1-1").is_dir(), "the run can be resumed"
    assert everywhere.run_one("AVX2", 1, 1) == everywhere.run_one("AVX2", 1, 0) == 0
    stored = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert [row["seed"] for row in stored] == [0, 1]
    assert not list((tmp_path / "runs").iterdir()), "folders of stored runs are deleted"


def test_demonstration_and_its_repetitions_use_the_same_recipe(tmp_path: Path) -> None:
    folders = (tmp_path / "wugs", tmp_path / "world")
    sets = f"data.sets=[{{path: '{folders[0]}', repeats: 100}}, {{path: '{folders[1]}', repeats: 1}}]"
    assert demo.words(folders, tmp_path / "a", tmp_path / "b")[0] == sets
    assert 2 * lesson.REPEATS[0] * 12 == lesson.REPEATS[1] * lesson.KEPT, "a third of the samples are wugs"
