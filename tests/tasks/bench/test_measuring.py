"""Measured runs train like normal runs, with one and with several processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mezzotint.cli import main
from mezzotint.tasks.bench import measuring
from support.run_folders import bench_results


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_measured_run_trains_like_a_normal_run(shared_world: Any, tmp_path: Path) -> None:
    assert shared_world.train("trained", run__steps=5) == 0
    losses = [line[1] for line in shared_world.end("trained").metrics]
    words = shared_world.words("trained-bench", run__steps=5)
    assert main(["bench", *words, f"--out={tmp_path / 'out'}"]) == 0
    assert [loss.hex() for loss in bench_results(tmp_path / "out")["rows"][0]["step_loss"]] == losses


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.usefixtures("quick")
def test_two_processes_measure_together_and_one_reports(
    shared_world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shared = {"data__buckets__shape": "square", "data__remainder": "fill", "run__steps": 4}
    children = shared_world.fork_group("pair", 2, verb="bench", **shared)
    assert [shared_world.wait(child) for child in children] == [0, 0], shared_world.out("pair")
    assert shared_world.out("pair").count("mezzotint bench") == 1
    pair = bench_results(tmp_path / "bench" / "pair")
    assert main(["bench", *shared_world.words("alone", **shared), f"--out={tmp_path / 'alone'}"]) == 0
    alone = bench_results(tmp_path / "alone")
    assert (pair["processes"], alone["processes"]) == (2, 1)
    assert pair["rows"][0]["step_samples"] == alone["rows"][0]["step_samples"]
    assert np.allclose(pair["rows"][0]["step_loss"], alone["rows"][0]["step_loss"], rtol=1e-4)


def test_peak_memory_is_counted_since_reset() -> None:
    device = torch.device("cpu")
    before = np.ones(1 << 26)  # 512 MB
    del before
    measuring.reset_peak(device)
    small = measuring.peak_memory(device)
    held = np.ones(1 << 25)
    assert measuring.peak_memory(device) - small > 0.9 * held.nbytes
