"""A measured run trains as a run does, alone and with others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from runs import bench_results

from mezzotint.cli import main
from mezzotint.tasks.bench import _run
from mezzotint.tasks.bench._run import PeakMemory

CHEAP = {"run__validation__timesteps": 1}
"""The loss at fixed timesteps is measured before and after; one timestep shows as much here."""


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_measured_run_trains_as_a_run_does(shared_world: Any, tmp_path: Path) -> None:
    assert shared_world.train("trained", run__steps=5) == 0
    losses = [line[1] for line in shared_world.end("trained").metrics]
    words = shared_world.words("trained-bench", run__steps=5, **CHEAP)
    assert main(["bench", *words, f"--out={tmp_path / 'out'}"]) == 0
    assert [loss.hex() for loss in bench_results(tmp_path / "out")["rows"][0]["step_loss"]] == losses


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.usefixtures("quick")
def test_two_processes_measure_together_and_one_of_them_tells(
    shared_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shared = {"data__buckets__shape": "square", "data__remainder": "fill", "run__steps": 4, **CHEAP}
    children = shared_world.fork_group("pair", 2, verb="bench", **shared)
    assert [shared_world.wait(child) for child in children] == [0, 0], shared_world.out("pair")
    assert shared_world.out("pair").count("mezzotint bench") == 1
    pair = bench_results(tmp_path / "bench" / "pair")
    assert main(["bench", *shared_world.words("alone", **shared), f"--out={tmp_path / 'alone'}"]) == 0
    alone = bench_results(tmp_path / "alone")
    assert (pair["processes"], alone["processes"]) == (2, 1)
    for name in ("step_samples",):
        assert pair["rows"][0][name] == alone["rows"][0][name]
    assert np.allclose(pair["rows"][0]["step_loss"], alone["rows"][0]["step_loss"], rtol=1e-4)
    assert pair["rows"][0]["protocol"]["per_device"] == 2


def test_what_earlier_rows_left_on_a_gpu_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"now": 1000, "peak": 5000}
    monkeypatch.setattr(_run, "used_memory", lambda device: held["now"])
    monkeypatch.setattr(_run, "peak_memory", lambda device: held["peak"])
    monkeypatch.setattr(_run, "reset_peak", lambda device: held.update(peak=held["now"]))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    memory = PeakMemory(torch.device("cuda"))
    memory.reset()
    held.update(now=1115, peak=1120)
    assert memory.read() == 120
    on_cpu = PeakMemory(torch.device("cpu"))
    assert on_cpu.read() == 1120, "the whole process counts"
