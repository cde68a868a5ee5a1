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
    """How pictures are dealt out. batch: samples of a micro-batch, over all processes. accumulation: micro-batches of
    an update. steps: updates of the run. fills: whether the last micro-batch of an epoch is filled up with repeats."""

    pictures: int
    batch: int
    accumulation: int
    processes: int
    steps: int
    fills: bool = True

    @property
    def per_device(self) -> int:
        """Samples of a micro-batch on one device."""
        return math.ceil(self.batch / self.processes)

    @property
    def total_batch(self) -> int:
        """Samples of a full update: `gbsz` of the published formula."""
        return self.batch * self.accumulation

    @property
    def micro_batches(self) -> int:
        """Of an epoch."""
        return math.ceil(self.pictures / self.batch)

    @property
    def updates(self) -> int:
        """Of an epoch; the last may have fewer micro-batches."""
        return math.ceil(self.micro_batches / self.accumulation)

    @property
    def epochs(self) -> int:
        """Epochs that the run begins."""
        return math.ceil(self.steps / self.updates)

    @property
    def fill_ups(self) -> int:
        """Samples of an epoch that are repeats, to fill its last micro-batch."""
        return self.micro_batches * self.batch - self.pictures if self.fills else 0

    @property
    def epoch_images(self) -> int:
        """Samples processed in an epoch."""
        return self.pictures + self.fill_ups

    @property
    def images(self) -> int:
        """Samples processed in the run."""
        whole, rest = divmod(self.steps, self.updates)
        return whole * self.epoch_images + min(rest * self.total_batch, self.epoch_images)


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
