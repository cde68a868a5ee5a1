"""Runs whose loss is made non-finite at given steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint.run_folder import RunFolder
from mezzotint.training.loop import Trainer
from mezzotint.training.step import TrainStep

SETTINGS = {
    "run__on_divergence": "roll-back", "run__max_nonfinite_steps": 1, "run__steps": 9, "run__save__every": 2,
    "run__save__asynchronous": False, "data__captions__dropout": 0.0, "run__export__parts": "trained",
}  # fmt: skip


def poisoning(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the loss of given steps (counted from 0) no number, where a rule says so."""
    loss = TrainStep.loss

    def spoil(*steps: int, when: Callable[[Trainer], bool] = lambda trainer: True) -> None:
        def spoilt(trainer: Trainer, batch: Any, step: int) -> Any:
            poisoned, level = loss(trainer, batch, step)
            if step in steps and when(trainer):
                poisoned.per_sample.mul_(math.nan)
                poisoned.total.mul_(math.nan)
            return poisoned, level

        monkeypatch.setattr(TrainStep, "loss", spoilt)

    return spoil


def events(folder: Path, name: str = "rolled-back") -> list[dict[str, Any]]:
    return [event for event in RunFolder(folder).events() if event["event"] == name]
