"""Sums of a step on the device, and its report, which is copied to the host asynchronously."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mezzotint.stages import Batch, Loss, StepBatches, StepReport

GROUPS = ("preserve", "instance", "class")
"""What is reported separately: the distance to the base's prediction (`objective.preserve`), and, if a run has class
images, the losses of the others and of these."""


@dataclass(slots=True)
class StepReportFuture:
    """A step's report whose numbers are being copied to the host; `result` reads them, one step later.

    numbers: loss, norm, found_inf, loss_is_finite and scale, then the `StepSums.groups`, then the timestep of each
    sample of this process, then its loss. The copy is queued with the step: queued later, it
    would run after the next step, and the host would wait for that step."""

    report: StepReport
    numbers: Tensor
    arrived: torch.cuda.Event | None = None

    def __post_init__(self) -> None:
        if self.numbers.device.type == "cuda":
            self.numbers = self.numbers.to("cpu", non_blocking=True)
            self.arrived = torch.cuda.Event()
            self.arrived.record()

    def result(self, memory_bytes: int = 0) -> StepReport:
        """Waits for the step's numbers, but not for work that was queued after them, and completes the report.
        memory_bytes: peak of allocated device memory so far."""
        if self.arrived is not None:
            self.arrived.synchronize()
        loss, norm, found_inf, loss_is_finite, scale, *rest = self.numbers.tolist()
        count = len(self.report.keys)
        groups, of_samples = rest[: len(rest) - 2 * count], rest[len(rest) - 2 * count :]
        sums = zip(GROUPS, groups[::2], groups[1::2], strict=False)
        return replace(
            self.report,
            loss=loss,
            norm=norm,
            applied=not found_inf,
            overflow=bool(found_inf) and bool(loss_is_finite) and scale > 1.0,
            timesteps=tuple(of_samples[:count]),
            losses=tuple(of_samples[count:]),
            memory_bytes=memory_bytes,
            loss_scale=scale,
            group_losses={name: total / weight for name, total, weight in sums if weight},
        )


@dataclass(slots=True)
class StepSums:
    """Sums over a step's micro-batches on this process. total: (1,), the weighted loss summed over samples. groups:
    (6,), for each of `GROUPS` its part of the loss and the sum of its samples' weights, or (2,) without class images.
    losses, timesteps: (B,) of each micro-batch. keys: of every sample. num_elements: see `Batch.num_elements`."""

    total: Tensor
    groups: Tensor
    losses: list[Tensor] = field(default_factory=list)
    timesteps: list[Tensor] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    num_elements: int = 0

    @classmethod
    def of(cls, batches: StepBatches, device: torch.device) -> StepSums:
        """Zeros for a step."""
        return cls(
            *torch.zeros(_count_sums(batches), dtype=torch.float32, device=device).split([1, _count_sums(batches) - 1])
        )

    def add(self, batch: Batch, loss: Loss, timesteps: Tensor, num_real: int) -> None:
        """Adds a micro-batch, whose first num_real samples count."""
        self.num_elements += batch.num_elements
        if batch.is_filler or not num_real:
            return
        self.keys += batch.keys[:num_real]
        self.total += loss.total.detach()
        self.add_groups(loss, batch)
        self.losses.append(loss.per_sample.detach()[:num_real])
        self.timesteps.append(timesteps[:num_real])

    def add_groups(self, loss: Loss, batch: Batch) -> None:
        """Adds each group's part of a micro-batch's loss."""
        if batch.is_class is None and loss.preserved is None:
            return
        weight = batch.weight.to(loss.weight.device, non_blocking=True)
        parts = [torch.zeros(2, len(weight), device=weight.device)]
        if loss.preserved is not None:
            parts = [torch.stack([loss.preserved.detach(), weight])]
        if batch.is_class is not None:
            is_class = batch.is_class.to(weight.device, non_blocking=True)
            weighted = torch.stack([(loss.per_sample * loss.weight).detach(), weight])
            parts += [weighted * ~is_class, weighted * is_class]
        self.groups += torch.stack(parts).sum(dim=2).flatten()


def _count_sums(batches: StepBatches) -> int:
    return 1 + 2 * (len(GROUPS) if batches.has_classes else 1)


def sums_of_failed_step(step: StepBatches, device: torch.device) -> Tensor:
    """`total` and `groups` of a process in which the step failed: NaN, so no process changes its weights."""
    return torch.full((_count_sums(step),), math.nan, device=device)
