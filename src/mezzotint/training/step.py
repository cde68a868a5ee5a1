"""One optimizer step: forward and backward pass of every micro-batch, then the update.

It does not synchronize with the host, except where a library reads the masks of text that is encoded in the step
(`docs/gpu-path.md`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mezzotint import fault_injection
from mezzotint.runtimes.base import Runtime
from mezzotint.stages import Batch, Loss, StepBatches, StepReport
from mezzotint.training import lr
from mezzotint.training.model import TrainableModel
from mezzotint.training.peers import Peers
from mezzotint.training.precision.attention import use_attention
from mezzotint.training.progress import Progress
from mezzotint.training.requests import RunHost
from mezzotint.training.step_report import StepReportFuture, StepSums
from mezzotint.training.trainable import UpdateCheck
from mezzotint.training.whole_batches import pad_batch


@dataclass(slots=True)
class TrainStep:
    """Call it with the batches of a step. seed: of all random draws. rate_factor: factor of every learning rate.
    micro_batch: maximum number of samples at once after memory ran out, None before. pad_to: number of samples to which
    every micro-batch is padded, None for no padding. update_check: see `UpdateCheck`."""

    model: TrainableModel
    runtime: Runtime
    peers: Peers
    host: RunHost[Any]
    progress: Progress
    update_check: UpdateCheck | None = None
    seed: int = 0
    rate_factor: float = 1.0
    micro_batch: int | None = None
    pad_to: int | None = None

    def __call__(self, step: StepBatches) -> StepReportFuture:
        """Runs the step."""
        sums = self.forward_backward(step)
        return self.update(step, sums)

    def forward_backward(self, step: StepBatches, at_most: int | None = None) -> StepSums:
        """Accumulates the gradients of a step, summed over all processes, in the parameters. at_most: maximum number of
        samples of each micro-batch, if the result does not count."""
        model, device = self.model, self.runtime.device
        self.runtime.set_phase(f"in the passes of step {step.step + 1}")
        fault_injection.reach("step.begin")
        if model.records_graphs:
            torch.compiler.cudagraph_mark_step_begin()
        sums = StepSums.of(step, device)
        for batch, num_real, is_last in self.micro_batches(step, at_most):
            with self.runtime.micro_batch(last=is_last):
                if batch.size:
                    with model.address_dropout(self.seed, step.step, batch.positions, device):
                        loss, timesteps = self.loss(batch, step.step)
                        if model.update.in_backward:
                            self.host.hold_save()
                            model.update.begin_backward(loss.total, self.rates(step.step), step=step.step)
                        with use_attention(model.attention, device):  # recomputed layers use the same kernel
                            (loss.total * (model.scale.scale / step.count)).backward()
                    sums.add(batch, loss, timesteps, num_real)
                    del loss, timesteps
                if is_last and at_most is None:
                    self.peers.attach(torch.cat([sums.total, sums.groups]), step.broken)
            del batch  # before the next one is moved to the device
        self.runtime.set_phase(f"after the passes of step {step.step + 1}")
        fault_injection.reach("step.backward")
        return sums

    def micro_batches(self, step: StepBatches, at_most: int | None = None) -> Iterator[tuple[Batch, int, bool]]:
        """Yields each micro-batch on the device, how many of its samples count (the rest is padding), and whether it is
        the step's last."""
        most = self.micro_batch or max(step.sizes, default=0) or 1
        counts = [max(1, -(-size // most)) for size in self._common_sizes(step)]
        remaining, batches = sum(counts), iter(step.batches)
        for count, size in zip(counts, step.sizes, strict=True):
            batch = next(batches)
            batch = pad_batch(batch, count * most) if count > 1 and self.runtime.shares else batch
            for start in range(0, count * most, most):
                remaining -= 1
                part = batch if count == 1 else batch.rows(start, start + most)
                part = part if at_most is None else part.rows(0, at_most)
                num_real = max(0, min(part.size, size - start))
                if self.pad_to is not None and part.size:
                    part = pad_batch(part, min(self.pad_to, self.micro_batch or self.pad_to))
                yield part, num_real, remaining == 0
                del part
            del batch

    def _common_sizes(self, step: StepBatches) -> Sequence[int]:
        """Size of each batch on this process; if processes share weights and split batches, the largest over all."""
        if self.micro_batch is None or not self.runtime.shares:
            return step.sizes
        gathered = self.runtime.gather(" ".join(map(str, step.sizes)))
        return [max(sizes) for sizes in zip(*(map(int, sizes.split()) for sizes in gathered), strict=True)]

    def loss(self, batch: Batch, step: int) -> tuple[Loss, Tensor]:
        """See `TrainableModel.loss`."""
        return self.model.loss(batch, self.seed, step, self.runtime.device)

    def update(self, step: StepBatches, sums: StepSums) -> StepReportFuture:
        """Updates the weights by the gradients in the parameters."""
        model = self.model
        if self.checks_gradients(step):
            assert self.update_check is not None
            self.update_check.check_gradients(model.trained, self.runtime.agree)
        total, *groups = self.peers.take_sums().split(1)
        scale, loss = (t.to(model.update.device) for t in (model.scale.scale.clone(), total[0] / step.count))
        if model.update.in_backward:
            norms = model.update.norms_in_backward()
        else:
            norms = self.runtime.grad_norms(model.trained, model.optim.clip.scope) / scale
        norm = torch.linalg.vector_norm(norms)
        loss_is_finite = torch.isfinite(loss).to(torch.float32)
        found_inf = 1.0 - torch.isfinite(norm).to(torch.float32) * loss_is_finite
        rates = self.rates(step.step)
        ema_is_due = model.optim.ema.rule != "none" and (step.step + 1) % model.optim.ema.interval == 0
        self.host.hold_save()
        model.update.apply(
            loss_scale=scale, norms=norms, found_inf=found_inf, lr=rates, update_ema=ema_is_due, step=step.step
        )
        model.scale.update(found_inf.to(self.runtime.device), step.step)
        fault_injection.reach("step.end")
        numbers = torch.stack([loss, norm, found_inf, loss_is_finite, scale]).to(self.runtime.device)
        report = StepReport(
            step.step,
            step.epoch,
            rates=rates,
            samples=step.count,
            wait_seconds=step.wait_seconds,
            keys=tuple(sums.keys),
            num_elements=sums.num_elements,
        )
        return StepReportFuture(report, torch.cat([numbers, *groups, *sums.timesteps, *sums.losses]))

    def checks_gradients(self, step: StepBatches) -> bool:
        """Whether this is the step in which every trained part must have a gradient."""
        is_first = step.step == self.progress.first_step
        return self.update_check is not None and is_first and not self.model.update.in_backward

    def rates(self, step: int) -> dict[str, float]:
        """The learning rate of each parameter group at a step (counted from 0)."""
        optim, rates = self.model.optim, {}
        for group in self.model.update.groups:
            schedule = optim.part_schedule.get(group.part, optim.schedule)
            factor = self.rate_factor * lr.factor(schedule, step, self.progress.last_step) * self.progress.rate
            rates[group.name] = optim.rate_of(group.rate_key) * group.rate_factor * factor
        return rates
