"""What a step adds up on the device, and its numbers on their way to the host."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mezzotint.stages import StepReport


@dataclass(slots=True)
class Pending:
    """A step's report without its numbers, which are on their way to the host; `resolve` reads them, one step later.

    numbers: loss, norm, found_inf, loss_is_finite and scale, then the timestep of each sample here, then its loss. They
    set out when the step is queued: asked for later, they would come behind the next step, and the host would wait for
    it.
    """

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
        loss, norm, found_inf, loss_is_finite, scale, *of_samples = self.numbers.tolist()
        count = len(self.report.keys)
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
        )


@dataclass(slots=True)
class StepSums:
    """What a step's micro-batches add up to. total: (1,), the weighted loss summed over this rank's samples; losses,
    timesteps: (B,) of each micro-batch; keys: of every sample."""

    total: Tensor
    losses: list[Tensor] = field(default_factory=list)
    timesteps: list[Tensor] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
