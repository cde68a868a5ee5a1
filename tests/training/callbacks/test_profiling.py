"""Profiling of some steps, which does not affect the run."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from mezzotint.training.callbacks.profiling import WARM_UP, Profiler
from mezzotint.training.progress import Progress


def look(profiler: Profiler, steps: int) -> list[bool]:
    due = []
    for step in range(1, steps + 1):
        progress = Progress(step=step, last_step=99)
        due.append(profiler.due(progress))
        if due[-1]:
            torch.ones(3).add_(1)
            profiler.on_step(None, progress)
    profiler.close()
    return due


def test_profiler_traces_steps_after_the_first_two(tmp_path: Path) -> None:
    said: list[str] = []
    profiler = Profiler(tmp_path / "profile", 2, rank=1, device=torch.device("cpu"), say=said.append)
    assert look(profiler, WARM_UP + 4) == [True] * (WARM_UP + 2) + [False] * 2
    trace = json.loads((tmp_path / "profile" / "rank1.json").read_text())
    assert any("aten::" in event.get("name", "") for event in trace["traceEvents"])
    assert said == [f"profile    2 steps in {tmp_path / 'profile' / 'rank1.json'}"]


def test_run_that_ends_before_profiling_writes_no_trace(tmp_path: Path) -> None:
    look(Profiler(tmp_path, 5, rank=0, device=torch.device("cpu"), say=print), WARM_UP + 1)
    assert not list(tmp_path.iterdir())
