"""Scalars: means over steps, which continue after a resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from mezzotint.training.callbacks._scalars import RunningMean, ScalarLog
from mezzotint.training.progress import Progress
from support.trainers import report


class Kept(ScalarLog):
    """Records what would be written: (step, values)."""

    def __init__(self, every: int) -> None:
        super().__init__(every, 1000)
        self.written: list[tuple[int, Mapping[str, float]]] = []

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        self.written.append((step, values))


def take(log: Kept, steps: range, last_step: int = 99, **changes: Any) -> Kept:
    for step in steps:
        log.on_step(report(step, **changes), Progress(step=step + 2, last_step=last_step))
    return log


def test_first_every_nth_and_last_step_are_written_with_speed() -> None:
    log = take(Kept(every=4), range(10), last_step=10)
    assert [step for step, _ in log.written] == [1, 4, 8, 10]
    first = log.written[0][1]
    assert (first["perf/images_per_s"], first["perf/data_wait"]) == (8.0, 0.25)
    assert first["loss/step"] == report(0).loss
    assert not {"memory/peak_gib", "scaler/scale"} & {*first}


def test_losses_between_two_points_are_averaged_by_timestep() -> None:
    log = Kept(every=3)
    for step, loss in enumerate((9.0, 1.0, 3.0)):
        take(log, range(step, step + 1), timesteps=(250.0,), losses=(loss,))
    tag = "loss/by_timestep/2"
    assert [(step, values[tag]) for step, values in log.written] == [(1, 9.0), (3, 2.0)]


def test_means_continue_after_resume() -> None:
    whole, first, rest = take(Kept(every=7), range(7)), take(Kept(every=7), range(3)), Kept(every=7)
    rest.load(json.loads(json.dumps(first.state())))
    take(rest, range(3, 7))
    assert rest.written == whole.written[1:]
    assert rest.state() == whole.state()


def test_smoothed_loss_starts_at_first_value_and_skips_nan() -> None:
    smoothed = RunningMean()
    assert smoothed.value is None
    smoothed.take(2.0)
    smoothed.take(float("nan"))
    assert smoothed.value == pytest.approx(2.0)
