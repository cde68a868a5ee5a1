"""What a step adds up on the device, and its numbers on their way to the host."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mezzotint.stages import Batch, Loss, StepBatches, StepReport

GROUPS = ("instance", "class")
"""Whose losses are told apart where there are class pictures: those of the subject, and those of its class."""


@dataclass(slots=True)
class Pending:
    """A step's report without its numbers, which are on their way to the host; `resolve` reads them, one step later.

    numbers: loss, norm, found_inf, loss_is_finite and scale, then the `StepSums.groups` of a run with class pictures,
    then the timestep of each sample here, then its loss. They set out when the step is queued: asked for later, they
    would come behind the next step, and the host would wait for it."""

    report: StepReport
    numbers: Tensor
    arrived: torch.cuda.Event | None = None

    def __post_init__(self) -> None:
        if self.numbers.device.type == "cuda":
            self.numbers = self.numbers.to("cpu", non_blocking=True)
            self.arrived = torch.cuda.Event()
            self.arrived.record()

    def resolve(self, memory_bytes: int) -> StepReport:
        """Waits for the step's numbers, and for nothing that was queued after them, and completes the report."""
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


class Heard:
    """What the processes have said with a step's gradients, on its way to the host: numbers that are above 0 where any
    process has raised a flag. They set out when the step's sums are there, so that the host waits for the exchange and
    not for the update behind it."""

    def __init__(self, numbers: Tensor) -> None:
        self._numbers, self._arrived = numbers, None
        if numbers.device.type == "cuda":
            self._numbers = numbers.to("cpu", non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record()

    def flags(self) -> int:
        """The flags of all processes."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return sum(1 << place for place, number in enumerate(self._numbers.tolist()) if number)


def as_numbers(flags: int, num: int, device: torch.device) -> Tensor:
    """`num` flags as numbers that can be summed, (num,) float32."""
    bits = torch.tensor([float(flags >> place & 1) for place in range(num)])
    return bits.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else bits


@dataclass(slots=True)
class StepSums:
    """What a step's micro-batches add up to. total: (1,), the weighted loss summed over this rank's samples; groups:
    (4,), for each of `GROUPS` its share of that, and the sum of its samples' weights, or none; losses, timesteps: (B,)
    of each micro-batch; keys: of every sample."""

    total: Tensor
    groups: Tensor
    losses: list[Tensor] = field(default_factory=list)
    timesteps: list[Tensor] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, batches: StepBatches, device: torch.device) -> StepSums:
        """Nothing yet, of a step."""
        return cls(*torch.zeros(_num(batches), dtype=torch.float32, device=device).split([1, _num(batches) - 1]))

    def add_groups(self, loss: Loss, batch: Batch) -> None:
        """Adds what each group has of a micro-batch's loss."""
        if batch.is_class is None:
            return
        weight = batch.weight.to(loss.weight.device, non_blocking=True)
        is_class = batch.is_class.to(weight.device, non_blocking=True)
        both = torch.stack([(loss.per_sample * loss.weight).detach(), weight])
        self.groups += torch.stack([both * ~is_class, both * is_class]).sum(dim=2).flatten()


def _num(batches: StepBatches) -> int:
    return 1 + 2 * len(GROUPS) * batches.has_classes


def not_made(batches: StepBatches, device: torch.device) -> Tensor:
    """What a process that has to give a step up says in the place of `total` and `groups`."""
    return torch.full((_num(batches),), math.nan, device=device)
