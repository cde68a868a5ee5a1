"""Sums of a step on the device, and its report."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mezzotint.stages import Loss, StepBatches, StepReport
from mezzotint.training.step_report import StepReportFuture, StepSums, sums_of_failed_step

CPU = torch.device("cpu")


def test_packed_numbers_are_read_by_position() -> None:
    numbers = torch.tensor([0.5, 2.0, 0.0, 1.0, 8.0, 6.0, 4.0, 3.0, 2.0, 1.0, 4.0, 10.0, 20.0, 0.25, 0.75])
    report = StepReportFuture(StepReport(step=3, keys=("a", "b")), numbers).result(99)
    assert (report.loss, report.norm, report.applied, report.overflow) == (0.5, 2.0, True, False)
    assert report.group_losses == {"preserve": 1.5, "instance": 1.5, "class": 0.25}
    assert (report.timesteps, report.losses) == ((10.0, 20.0), (0.25, 0.75))
    assert (report.memory_bytes, report.loss_scale, report.step) == (99, 8.0, 3)


@pytest.mark.parametrize(
    ("found_inf", "finite", "scale", "applied", "overflow"),
    [
        (0.0, 1.0, 8.0, True, False),
        (1.0, 1.0, 8.0, False, True),
        (1.0, 0.0, 8.0, False, False),
        (1.0, 1.0, 1.0, False, False),
    ],
    ids=["applied", "fp16 overflow", "loss is nan", "scale at its minimum"],
)
def test_overflow_is_distinguished_from_nonfinite_step(
    found_inf: float, finite: float, scale: float, applied: bool, overflow: bool
) -> None:
    report = StepReportFuture(StepReport(step=0), torch.tensor([1.0, 1.0, found_inf, finite, scale])).result()
    assert (report.applied, report.overflow, report.group_losses) == (applied, overflow, {})


def test_group_without_samples_has_no_loss() -> None:
    numbers = torch.tensor([0.5, 2.0, 0.0, 1.0, 8.0, 0.0, 0.0, 3.0, 2.0, 0.0, 0.0])
    assert StepReportFuture(StepReport(step=0), numbers).result().group_losses == {"instance": 1.5}


def test_each_group_has_its_share_of_loss_and_weights() -> None:
    sums = StepSums.of(StepBatches(0, 0, 4, [], has_classes=True), CPU)
    per_sample, weight = torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([1.0, 1.0, 0.5, 0.5])
    batch: Any = SimpleNamespace(weight=weight, is_class=torch.tensor([False, True, False, True]))
    loss = Loss(per_sample, weight)
    for _ in range(2):
        sums.add_groups(loss, batch)
    assert sums.groups.tolist() == [0.0, 0.0, 6.0, 3.0, 12.0, 3.0]
    sums.add_groups(replace(loss, preserved=per_sample), batch)
    assert sums.groups.tolist() == [15.0, 3.0, 9.0, 4.5, 18.0, 4.5]


@pytest.mark.parametrize("has_classes", [False, True])
def test_failed_step_report_has_equal_length_and_nan(has_classes: bool) -> None:
    batches = StepBatches(0, 0, 4, [], has_classes=has_classes)
    sums, given_up = StepSums.of(batches, CPU), sums_of_failed_step(batches, CPU)
    assert len(given_up) == len(sums.total) + len(sums.groups) == (7 if has_classes else 3)
    assert all(math.isnan(x) for x in given_up.tolist())
