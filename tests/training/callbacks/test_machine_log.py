"""Curves of processors, memory and the device. The device is simulated: no test machine has one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import mezzotint as mz
from mezzotint.runtimes.shared import machine_load
from mezzotint.runtimes.shared.machine_load import DeviceMemory, MachineLoad
from mezzotint.stages import StepReport
from mezzotint.training.callbacks import machine_log
from mezzotint.training.callbacks.machine_log import MachineLog
from mezzotint.training.progress import Progress


def test_a_point_every_ten_seconds_with_what_was_used_since() -> None:
    points: list[tuple[int, dict[str, float]]] = []
    clock = iter([0.0, 4.0, 12.0, 13.0, 32.0])
    loads = iter([MachineLoad(1, 10, 10), MachineLoad(19, 40, 30), MachineLoad(29, 50, 60)])
    log = MachineLog(
        lambda step, values: points.append((step, dict(values))),
        lambda: next(loads), lambda: (5, 7), lambda: {"utilization": 93}, lambda: next(clock),
    )  # fmt: skip
    for step in range(5):
        log.on_step(StepReport(step=step), Progress(step=step + 1, last_step=9))
    memory = {"machine/memory_bytes": 5.0, "machine/available_bytes": 7.0, "device/utilization": 93.0}
    assert points == [
        (3, {"machine/processors": 1.5, "machine/busy": 0.6, **memory}),
        (5, {"machine/processors": 0.5, "machine/busy": 0.25, **memory}),
    ]


def test_a_device_without_the_package_has_its_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_missing(device: torch.device) -> int:
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed")

    gpu = torch.device("cuda", 0)
    monkeypatch.setattr(machine_load, "read_device_memory", lambda device: DeviceMemory(80, 20, 0))
    for name in ("utilization", "temperature", "power_draw"):
        monkeypatch.setattr(torch.cuda, name, is_missing)
    assert machine_load.read_device(gpu) == {"memory": 75.0}
    monkeypatch.setattr(torch.cuda, "power_draw", lambda device: 312_000)  # milliwatts, as torch gives them
    monkeypatch.setattr(torch.cuda, "temperature", lambda device: 61)
    assert machine_load.read_device(gpu) == {"memory": 75.0, "temperature": 61, "power": 312.0}
    assert machine_load.read_device(torch.device("cpu")) == {"memory": 75.0}, "of the simulated memory"


def test_memory_of_this_machine() -> None:
    own, available = machine_load.read_memory()
    kept = torch.ones(50 << 20, dtype=torch.uint8)
    assert machine_load.read_memory()[0] - own > 40 << 20, "50 MB more"
    assert kept.sum() > 0
    assert available > 1 << 20


def test_run_writes_the_points_into_its_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_log, "SECONDS", 0.0)
    mz.train(mz.recipe("tiny_cpu", "run.steps=3", f"run.folder={tmp_path / 'run'}", "data.path=shapes"))
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    ]
    points = [line for line in lines if "machine/processors" in line]
    assert [line["step"] for line in points] == [2, 3]
    assert all(0 < line["machine/memory_bytes"] < 1 << 40 for line in points)
    assert all(line.keys() & {"loss", "norm"} == set() for line in points)
