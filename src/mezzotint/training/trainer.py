"""The loop. It moves values through family and objective, and it alone remembers anything.

run: for the batches of each step: report = step(batches); progress moves on; callbacks that are due look; actions
are acted on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from mezzotint import fault_injection
from mezzotint.errors import Diverged, StorageError
from mezzotint.recipe.resolved import Resolved
from mezzotint.runtimes.base import Runtime
from mezzotint.stages import Batch, Loss, StepBatches, StepReport
from mezzotint.training import lr
from mezzotint.training.callbacks.base import Action, Callback
from mezzotint.training.model import TrainableModel
from mezzotint.training.precision.attention import attending
from mezzotint.training.progress import Progress
from mezzotint.training.requests import RunHost as RunHost
from mezzotint.training.step_numbers import Heard, Pending, StepSums, as_numbers, not_made
from mezzotint.training.trainable import UpdateCheck
from mezzotint.training.whole_batches import filled

_SAVE, _STOP, _WRITING, _SHORT, _DRAW, _BROKEN, _LOST, _FIRST_CLOCK = 1, 2, 4, 8, 16, 32, 64, 128


@dataclass(slots=True)
class Trainer:
    """One run. model: what is trained. batches: of each step. host: what the run's owner does. resolved: what
    was worked out at the start. update_check: sees once that every part moves."""

    model: TrainableModel
    batches: Iterable[StepBatches]
    runtime: Runtime
    host: RunHost[Trainer]
    resolved: Resolved
    progress: Progress
    callbacks: Sequence[Callback] = ()
    max_bad_steps: int = 5
    update_check: UpdateCheck | None = None
    clock: Callable[[], float] = time.monotonic
    owes_export: bool = False
    """Whether an export was due with the newest checkpoint and has not been written yet: the checkpoint knows it."""
    stopped: bool = False
    """Whether a signal ended the run; one that a callback ended early has come to its end."""
    micro_batch: int | None = None
    """The most samples at once since memory ran out; None while it has not. The checkpoint knows it."""
    whole: int | None = None
    """Samples that every micro-batch is filled up to; None where each has what there is."""
    _pending: Pending | None = None
    _mark: float = 0.0
    _last_clock: list[float] = field(default_factory=list)
    _saved_step: int = -1
    _saving_step: int = -1
    _ended: bool = False
    _failed_save: str = ""
    _asked: int = 0
    _own: int = 0
    _lost: str = ""
    _heard: Heard | None = None

    def run(self) -> None:
        """Trains from where progress stands to its last step. Raises Diverged, StorageError (of the final save),
        PeerLost."""
        try:
            self._run()
        except BaseException:
            self.host.give_up_save()
            raise

    def _run(self) -> None:
        remembering = [type(one).__name__ for one in self.callbacks if one.state()]
        assert len({*remembering}) == len(remembering), remembering
        self._mark = self.clock()
        self._last_clock = [self._mark] * len(self.callbacks)
        if self.progress.step == self.progress.first_step:
            for callback in self.callbacks:
                if callback.due(self.progress) and self._runs_here(callback):
                    self._call(callback, None)
            self.runtime.barrier()
            self._mark = self.clock()
        for batches in self.batches:
            if self.progress.step == self.progress.first_step or self.progress.epoch_ends:
                self.host.epoch_begins(self, batches.epoch)
            while not self._made(batches):
                self.runtime.begin_again()
            if self.stopped or self._ended or self.progress.is_done:
                break
        if self._pending is not None:
            self._flush()
        self._end_save()
        if self._failed_save:
            raise StorageError(self._failed_save, code="E1704")

    def _made(self, batches: StepBatches) -> bool:
        """Makes a step, or finds that memory ran out on any process: then nothing has moved, and it is to be made again
        in smaller micro-batches. Raises OutOfMemoryError where they cannot be smaller."""
        p, scale = self.progress, {n: t.clone() for n, t in self.model.scale.tensors().items()}
        before = p.step, p.epoch, p.epoch_ends, p.samples, p.seconds
        sums, shortage = None, ""
        try:
            sums = self._passes(batches)
        except torch.OutOfMemoryError as error:
            if not self.runtime.may_repeat or self.model.update.in_backward:
                raise
            shortage = str(error)
        if sums is None:
            self._give_up(batches)
        pending = None if sums is None else self._finished(batches, sums)
        seconds = self.clock() - self._mark
        self._mark += seconds
        if pending is not None:
            pending.report = replace(pending.report, seconds=seconds)
            self._move_on(batches, pending.report)
        if self._between_steps(pending, batches.broken):
            return True
        # every process has found the loss not finite, and moved nothing
        p.step, p.epoch, p.epoch_ends, p.samples, p.seconds = before
        self._pending = None
        self.model.scale.load(scale)
        self._halve(batches, shortage or "on another process")
        return False

    def _give_up(self, batches: StepBatches) -> None:
        """After memory ran out here: takes part in what the other processes do in this step, so that it moves nothing
        there."""
        self._carry(not_made(batches, self.runtime.device), batches, _SHORT)
        self.runtime.abandon(lambda: self._passes(batches, at_most=1))
        for parameter in self.model.trained.values():
            parameter.grad = None
        if self.runtime.device.type == "cuda":
            torch.cuda.empty_cache()
        if self.update_check is not None and batches.step == self.progress.first_step:
            self.runtime.agree(0)
        self._take_carried()
        self.runtime.grad_norms(self.model.trained, self.model.optim.clip.scope)

    def _halve(self, batches: StepBatches, shortage: str) -> None:
        here = min(max(batches.sizes), self.micro_batch or max(batches.sizes))
        most = max(map(int, self.runtime.gather(str(here))))
        if most <= 1:
            raise torch.OutOfMemoryError(shortage)
        self.micro_batch = -(-most // 2)
        self.host.warn(
            f"out of memory at step {batches.step + 1} with {most} samples at once ({shortage.partition(chr(10))[0]}): "
            f"from here on at most {self.micro_batch}, on every process, with the same draws; "
            f"run.micro_batch={self.micro_batch} begins so"
        )

    def step(self, batches: StepBatches) -> Pending:
        """One optimizer step. Nothing in it is read back to the host, but for what a library asks of the masks of text
        that is encoded in it (`docs/gpu-path.md`)."""
        return self._finished(batches, self._passes(batches))

    def _passes(self, batches: StepBatches, at_most: int | None = None) -> StepSums:
        """Forward and backward of every micro-batch. at_most: samples of each, where the result does not count."""
        self.runtime.at(f"in the passes of step {batches.step + 1}")
        fault_injection.reach("step.begin")
        if self.model.records_graphs:
            torch.compiler.cudagraph_mark_step_begin()
        sums = StepSums.of(batches, self.runtime.device)
        most = self.micro_batch or max(batches.sizes, default=0) or 1
        counts = [max(1, -(-size // most)) for size in self._sizes(batches)]
        left, in_order = sum(counts), iter(batches.batches)
        for count, size in zip(counts, batches.sizes, strict=True):
            batch = next(in_order)
            batch = filled(batch, count * most) if count > 1 and self.runtime.shares else batch
            for start in range(0, count * most, most):
                left -= 1
                part = batch if count == 1 else batch.rows(start, start + most)
                with self.runtime.micro_batch(last=not left):
                    self._pass(part if at_most is None else part.rows(0, at_most), batches, sums, size - start)
                    if not left and at_most is None:
                        self._carry(torch.cat([sums.total, sums.groups]), batches)
            del batch, part  # before the next one is moved to the device
        self.runtime.at(f"behind the passes of step {batches.step + 1}")
        fault_injection.reach("step.backward")
        return sums

    def _sizes(self, batches: StepBatches) -> Sequence[int]:
        """Samples of each batch here; where all compute together in parts of them, of the process that has most."""
        if self.micro_batch is None or not self.runtime.shares:
            return batches.sizes
        each = self.runtime.gather(" ".join(map(str, batches.sizes)))
        return [max(sizes) for sizes in zip(*(map(int, one.split()) for one in each), strict=True)]

    def _pass(self, batch: Batch, batches: StepBatches, sums: StepSums, left: int) -> None:
        """left: samples of the process's batch that are in this part of it or behind it; the rest are fillers."""
        if not batch.size:
            return
        device, size = self.runtime.device, max(0, min(batch.size, left))
        if self.whole is not None:
            batch = filled(batch, min(self.whole, self.micro_batch or self.whole))
        with self.model.drawing(self.resolved.seed, batches.step, batch.positions, device):
            loss, level = self._loss(batch, batches.step)
            if self.model.update.in_backward:
                self.host.hold_save()
                self.model.update.begin_backward(loss.total, self.rates(batches.step))
            with attending(self.model.attention, device):  # what is recomputed takes the same kernel
                (loss.total * (self.model.scale.scale / batches.count)).backward()
        if not batch.is_filler and size:
            sums.keys += batch.keys[:size]
            sums.total += loss.total.detach()
            sums.add_groups(loss, batch)
            sums.losses.append(loss.per_sample.detach()[:size])
            sums.timesteps.append(level[:size])

    def _finished(self, batches: StepBatches, sums: StepSums) -> Pending:
        """Moves the weights by the gradients that lie there."""
        is_first = batches.step == self.progress.first_step
        if self.update_check is not None and is_first and not self.model.update.in_backward:
            self.update_check.check_gradients(self.model.trained, self.runtime.agree)
        loss, *groups = self._take_carried().split(1)
        return self._apply(batches, loss[0] / batches.count, sums, groups)

    def _carry(self, sums: Tensor, batches: StepBatches, flags: int = 0) -> None:
        """Gives the step's sums, and what this process has to say, to the exchange of its gradients."""
        self._own |= flags
        if self.runtime.world_size > 1:
            self._own |= self._flags(batches.broken)
            sums = torch.cat([sums, as_numbers(self._own, self._num_flags, sums.device)])
        self.runtime.carry(sums)

    def _take_carried(self) -> Tensor:
        """The sums over all processes; what they have said sets out for the host, before the update is queued."""
        summed = self.runtime.carried()
        if self.runtime.world_size == 1:
            return summed
        self._heard = Heard(summed[-self._num_flags :])
        return summed[: -self._num_flags]

    @property
    def _num_flags(self) -> int:
        return (_FIRST_CLOCK << len(self.callbacks)).bit_length() - 1

    def _loss(self, batch: Batch, step: int) -> tuple[Loss, Tensor]:
        return self.model.loss(batch, self.resolved.seed, step, self.runtime.device)

    def _apply(self, batches: StepBatches, loss: Tensor, sums: StepSums, groups: Sequence[Tensor]) -> Pending:
        scale, loss = (one.to(self.model.update.device) for one in (self.model.scale.scale.clone(), loss))
        if self.model.update.in_backward:
            norms = self.model.update.norms_in_backward()
        else:
            norms = self.runtime.grad_norms(self.model.trained, self.model.optim.clip.scope) / scale
        norm = torch.linalg.vector_norm(norms)
        loss_is_finite = torch.isfinite(loss).to(torch.float32)
        found_inf = 1.0 - torch.isfinite(norm).to(torch.float32) * loss_is_finite
        rates = self.rates(batches.step)
        due = self.model.optim.ema.rule != "none" and (batches.step + 1) % self.model.optim.ema.interval == 0
        self.host.hold_save()
        self.model.update.apply(loss_scale=scale, norms=norms, found_inf=found_inf, lr=rates, update_ema=due)
        self.model.scale.update(found_inf.to(self.runtime.device), batches.step)
        fault_injection.reach("step.end")
        numbers = torch.stack([loss, norm, found_inf, loss_is_finite, scale]).to(self.runtime.device)
        report = StepReport(
            batches.step,
            batches.epoch,
            rates=rates,
            samples=batches.count,
            wait_seconds=batches.wait_seconds,
            keys=tuple(sums.keys),
        )
        return Pending(report, torch.cat([numbers, *groups, *sums.timesteps, *sums.losses]))

    def rates(self, step: int) -> dict[str, float]:
        """The learning rate of each parameter group at a step (counted from 0)."""
        optim, rates = self.model.optim, {}
        for group in self.model.update.groups:
            schedule = optim.part_schedule.get(group.part, optim.schedule)
            factor = self.resolved.rate_factor * lr.factor(schedule, step, self.progress.last_step) * self.progress.rate
            rates[group.name] = optim.part_lr.get(group.part, optim.lr) * factor
        return rates

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor that a checkpoint keeps, by flat name."""
        return self.model.tensors()

    def state(self) -> dict[str, Any]:
        """Everything else that a checkpoint keeps, as JSON."""
        return (
            {
                "progress": self.progress.state(),
                "callbacks": {type(o).__name__: o.state() for o in self.callbacks if o.state()},
            }
            | ({"owed": ["export"]} if self.owes_export else {})
            | ({"micro_batch": self.micro_batch} if self.micro_batch is not None else {})
        )

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Takes back a checkpoint's tensors and state."""
        self.model.load(tensors)
        self.progress.load(state["progress"], last_step=self.progress.last_step)
        self.owes_export = "export" in state.get("owed", ())
        self.micro_batch = state.get("micro_batch")
        for callback in self.callbacks:
            callback.load(state["callbacks"].get(type(callback).__name__, {}))
        if self.progress.applied >= UpdateCheck.updates:
            self.update_check = None

    def _move_on(self, batches: StepBatches, report: StepReport) -> None:
        p = self.progress
        p.step = batches.step + 1
        p.epoch = batches.epoch
        p.epoch_ends = batches.ends_epoch
        p.samples += batches.count
        p.seconds += report.seconds
        for part, rate in self._rates_by_part(report).items():
            p.rate_peak[part] = max(p.rate_peak.get(part, 0.0), rate)

    def _between_steps(self, pending: Pending | None, broken: Sequence[str] = ()) -> bool:
        """Everything the host does between two steps: read the last report, agree, look, act. pending: None where
        memory ran out. broken: see `StepBatches`. Returns whether no process had to give the step up;
        otherwise nothing else is done yet."""
        if self._pending is not None:
            self._read(self._pending)
        self._pending = pending
        if self.runtime.world_size == 1:  # nobody has to be told, so that it is never too late
            self._own |= self._flags(broken)
        agreed = self._own | (self._heard.flags() if self._heard is not None else 0)
        self._own, self._heard = 0, None
        if agreed & _LOST:  # nothing is waited for: there is no place for it
            raise StorageError(self._lost or "the first process has lost the run folder", code="E1520")
        if not agreed & _WRITING:
            self._end_save()
        self._asked |= agreed & ~(_WRITING | _BROKEN)
        if agreed & _BROKEN:
            self._note_broken(broken)
        if self._asked & _SHORT:
            self._asked ^= _SHORT
            return False
        flags, self._asked = self._asked, 0
        on_clock = [bool(flags & (_FIRST_CLOCK << place)) for place in range(len(self.callbacks))]
        self._last_clock = [self.clock() if due else last for due, last in zip(on_clock, self._last_clock, strict=True)]
        due = [
            callback
            for callback, is_due in zip(self.callbacks, on_clock, strict=True)
            if not callback.follows
            and (is_due or callback.due(self.progress) or (callback.draws_when_asked and flags & _DRAW))
        ]
        if not due and not flags & (_SAVE | _STOP) and self.update_check is None:
            return True
        report = self._flush()
        action = Action.NOTHING
        for callback in due:
            if self._runs_here(callback):
                action |= self._call(callback, report)
        if due:  # what any process asks for, all do: a callback may look in the first process alone, and for long
            self.runtime.barrier()
            action = Action(self.runtime.agree(action.value))
        self.stopped = self.stopped or bool(flags & _STOP)
        action |= Action.SAVE if flags & _SAVE else Action.NOTHING
        self._act(action | Action.STOP if self.stopped else action)
        # what saving and showing took is not the steps' time
        self._mark = self.clock()
        return True

    def _note_broken(self, mine: Sequence[str]) -> None:
        known = set(self.progress.broken)
        new = {key for keys in self.runtime.gather(json.dumps(mine)) for key in json.loads(keys)} - known
        self.progress.broken = sorted(known | new)
        self.host.broken(sorted(new), len(self.progress.broken))

    def _flags(self, broken: Sequence[str]) -> int:
        """What this process has to say. broken: see `StepBatches`."""
        flags = self.host.requests() | self._clock_flags()
        flags |= _BROKEN if set(broken).difference(self.progress.broken) else 0
        self._lost = self.host.loss_of_folder()
        return flags | (_WRITING if self.host.is_saving() else 0) | (_LOST if self._lost else 0)

    def _clock_flags(self) -> int:
        """Intervals in minutes that have passed, by the first process's clock."""
        if not self.runtime.is_first:
            return 0
        now, each = self.clock(), enumerate(zip(self.callbacks, self._last_clock, strict=True))
        return sum(_FIRST_CLOCK << place for place, (callback, last) in each if now - last >= 60 * callback.minutes)

    def _runs_here(self, callback: Callback) -> bool:
        return callback.on_all_ranks or self.runtime.is_first

    def _flush(self) -> StepReport:
        """Reads the report of the step just made, so that what is saved or shown now knows it."""
        assert self._pending is not None
        report, self._pending = self._read(self._pending), None
        return report

    def _read(self, pending: Pending) -> StepReport:
        device = self.runtime.device
        report = pending.resolve(torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0)
        self._count_bad(report)
        if report.applied:
            self.progress.applied += 1
            rates, optim = self._rates_by_part(report), self.model.optim
            base = {part: optim.part_lr.get(part, optim.lr) for part in rates}
            if self.update_check is not None and self.update_check.counts(rates, base):
                self.update_check.check_movement(self.model.update.masters, self.progress.rate_peak, self.runtime.agree)
                self.update_check = None
        for callback in self.callbacks:
            if callback.follows and self._runs_here(callback):
                self._call(callback, report)
        return report

    def _rates_by_part(self, report: StepReport) -> dict[str, float]:
        return {group.part: report.rates[group.name] for group in self.model.update.groups}

    def _count_bad(self, report: StepReport) -> None:
        if report.applied or report.overflow:
            self.progress.bad_in_a_row = 0 if report.applied else self.progress.bad_in_a_row
            return
        is_over = self.progress.count_bad(report.step, self.max_bad_steps)
        self.host.bad_step(report)
        if is_over:
            raise Diverged(
                f"step {report.step + 1}: {self.progress.bad_in_a_row} steps in a row and "
                f"{len(self.progress.bad_steps)} of the last 1000 were not finite; their samples are in "
                "bad_steps.jsonl; lower optim.lr"
                + (", or take run.precision=bf16 or fp32" if self.model.precision.scaled else ""),
                code="E1604",
                step=report.step + 1,
            )

    def _call(self, callback: Callback, report: StepReport | None) -> Action:
        try:
            return callback.on_step(report, self.progress)
        except StorageError as error:
            self.host.warn(f"{type(callback).__name__}: {error.message}; training goes on without it")
            return Action.NOTHING

    def _act(self, action: Action) -> None:
        self.owes_export = Action.EXPORT in action
        if action & (Action.SAVE | Action.STOP) and self._saved_step != self.progress.step:
            self._save(final=Action.STOP in action or self.progress.is_done)
        if Action.EXPORT in action:
            self._end_save()
            try:
                self.host.export(self)
            except StorageError as error:
                self.host.warn(f"the export of step {self.progress.step} could not be written: {error.message}")
            self.owes_export = False
            self.runtime.barrier()
        self._ended = Action.STOP in action

    def _end_save(self) -> None:
        """Waits for the checkpoint under way, if any. One that failed is told; the next one is another try."""
        if self._saving_step < 0:
            return
        step, self._saving_step = self._saving_step, -1
        is_refused, words = self._tried(step, self.host.end_save)
        if is_refused:
            self._saved_step = -1
        if words:
            self.host.warn(words)

    def _save(self, *, final: bool) -> None:
        self._end_save()
        step, at_once = self.progress.step, final or self.owes_export
        is_refused, words = self._tried(step, lambda: self.host.save(self, at_once=at_once))
        if not is_refused:
            self._saved_step, self._saving_step = step, -1 if at_once else step
        elif final:  # it ends the run, and is said once
            self._failed_save = words or "another process could not save the final checkpoint"
        elif words:
            self.host.warn(words)

    def _tried(self, step: int, save: Callable[[], None]) -> tuple[bool, str]:
        """Does a part of saving. Returns whether any process was refused by its disk, and the words for it here. Raises
        Diverged on every process where weights are spoilt, which of several the first alone may see."""
        words, spoilt = "", None
        self.runtime.at(f"at the checkpoint of step {step}")
        self.runtime.agree(0)  # one that hangs is noticed here: behind, all wait as long as one writes
        try:
            save()
        except StorageError as error:
            words = f"the checkpoint of step {step} could not be saved: {error.message}"
        except Diverged as error:
            spoilt = error
        self.runtime.barrier()  # the first process may have written for long
        flags = self.runtime.agree(bool(words) | 2 * (spoilt is not None))
        if flags & 2:
            message = spoilt.message if spoilt else "the first process has found weights that are not finite"
            raise Diverged(message, code="E1603", step=step) from spoilt
        return bool(flags), words
