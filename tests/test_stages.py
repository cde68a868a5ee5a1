"""Properties of the values passed between stages."""

from __future__ import annotations

import numpy as np
import torch

from mezzotint.stages import Epoch, Loss, StepReport, TextEmbedding


def test_dropped_samples_are_zeros_and_others_unchanged() -> None:
    text = TextEmbedding(torch.ones(2, 3, 4), torch.ones(2, 3), torch.ones(2, 5), lengths=(3, 3))
    assert text.zero_samples(None) is text
    zeroed = text.zero_samples(torch.tensor([True, False]))
    assert [float(part.sum()) for part in (zeroed.states[0], zeroed.states[1], zeroed.pooled[0])] == [0.0, 12.0, 0.0]  # type: ignore[index]
    assert zeroed.mask is text.mask
    assert zeroed.lengths == zeroed.to("meta").lengths == (3, 3)


def test_loss_is_the_weighted_sum() -> None:
    assert float(Loss(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 3.0])).total) == 6.5


def test_epoch_counts_its_batches_and_steps() -> None:
    rows, steps = np.arange(3, dtype=np.int32), np.array([0, 0, 1], np.int32)
    bucket = np.zeros(3, np.int16)
    epoch = Epoch(0, rows, rows, np.arange(4), steps, bucket, np.ones(3, np.float32))
    assert (epoch.num_batches, epoch.num_steps) == (3, 2)


def test_speed_of_a_step_without_time_is_zero() -> None:
    report = StepReport(0, samples=4, seconds=0.5, wait_seconds=0.6)
    assert (report.images_per_s, report.data_wait) == (8.0, 1.0)
    assert StepReport(0).images_per_s == 0.0
