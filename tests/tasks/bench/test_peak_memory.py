"""The memory of a row."""

from __future__ import annotations

import pytest
import torch

from mezzotint.tasks.bench import _peak_memory
from mezzotint.tasks.bench._peak_memory import PeakMemory


def test_what_earlier_rows_left_on_a_gpu_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {"now": 1000, "peak": 5000}
    monkeypatch.setattr(_peak_memory, "used_memory", lambda device: held["now"])
    monkeypatch.setattr(_peak_memory, "peak_memory", lambda device: held["peak"])
    monkeypatch.setattr(_peak_memory, "reset_peak", lambda device: held.update(peak=held["now"]))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    memory = PeakMemory(torch.device("cuda"))
    memory.reset()
    held.update(now=1115, peak=1120)
    assert memory.read() == 120
    on_cpu = PeakMemory(torch.device("cpu"))
    assert on_cpu.read() == 1120, "the whole process counts"
