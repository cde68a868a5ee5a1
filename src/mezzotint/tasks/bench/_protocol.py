"""The arithmetic of a protocol: how pictures become batches, updates and epochs, and how a progress bar and a published
formula turn seconds into speed. Pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

READ_AT = 100
"""The step at which the published protocol reads the bar: its run has 101, so that the last one does not count."""

_SMOOTHING = 0.3  # of tqdm's bar


@dataclass(frozen=True, slots=True)
class Protocol:
    """How pictures are dealt out. per_device: samples of a micro-batch on one device. total_batch: samples of a full
    update, `gbsz` of the published formula. micro_batches, updates: of an epoch, whose last update may have fewer
    micro-batches. epochs: that the run begins. fill_ups: samples of an epoch that are repeats, to fill its last
    micro-batch. epoch_images, images: samples processed in an epoch and in the run."""

    per_device: int
    total_batch: int
    micro_batches: int
    updates: int
    epochs: int
    fill_ups: int
    epoch_images: int
    images: int

    @staticmethod
    def of(pictures: int, batch: int, accumulation: int, processes: int, steps: int, *, fills: bool = True) -> Protocol:
        """batch: samples of a micro-batch, over all processes. accumulation: micro-batches of an update. steps: updates
        of the run. fills: whether the last micro-batch of an epoch is filled up with repeats."""
        total_batch, micro_batches = batch * accumulation, math.ceil(pictures / batch)
        updates = math.ceil(micro_batches / accumulation)
        fill_ups = micro_batches * batch - pictures if fills else 0
        epoch_images = pictures + fill_ups
        whole, rest = divmod(steps, updates)
        return Protocol(
            per_device=math.ceil(batch / processes),
            total_batch=total_batch,
            micro_batches=micro_batches,
            updates=updates,
            epochs=math.ceil(steps / updates),
            fill_ups=fill_ups,
            epoch_images=epoch_images,
            images=whole * epoch_images + min(rest * total_batch, epoch_images),
        )


def bar_seconds(seconds: Sequence[float]) -> float:
    """The seconds a step that tqdm's bar shows after these steps: their exponential mean, corrected for its start.

    (0.3 x_n + 0.7 · 0.3 x_{n−1} + …) / (1 − 0.7ⁿ). seconds: of each step, in order; at least one.
    """
    mean = 0.0
    for each in seconds:
        mean = _SMOOTHING * each + (1.0 - _SMOOTHING) * mean
    return mean / (1.0 - (1.0 - _SMOOTHING) ** len(seconds))


def ips(total_batch: int, seconds: float, devices: int) -> float:
    """Images a second and device by the published formula, gbsz / time / #gpu. It takes every update for a full one."""
    return total_batch / seconds / devices
