"""The training loop. `TrainStep` runs a step, `Recovery` handles its failures, callbacks run between steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from mezzotint.errors import StorageError
from mezzotint.runtimes.base import Runtime
from mezzotint.stages import StepBatches, StepReport
from mezzotint.training.callbacks.base import Action, Callback
from mezzotint.training.model import TrainableModel
from mezzotint.training.peers import NONE, Peers, PeerSignals
from mezzotint.training.progress import Progress
from mezzotint.training.recovery import Recovery
from mezzotint.training.requests import RunHost as RunHost
from mezzotint.training.saving import CheckpointSaver
from mezzotint.training.step import TrainStep
from mezzotint.training.step_report import StepReportFuture
from mezzotint.training.trainable import UpdateCheck


@dataclass(slots=True)
class Trainer:
    """One run. batches: those of each step. host: saves, exports and reports. seed, rate_factor, pad_to: see
    `TrainStep`. max_nonfinite_steps: number of consecutive non-finite steps that the run tolerates. update_check:
    checks once that every part is updated."""

    model: TrainableModel
    batches: Iterable[StepBatches]
    runtime: Runtime
    host: RunHost[Trainer]
    progress: Progress
    callbacks: Sequence[Callback] = ()
    seed: int = 0
    rate_factor: float = 1.0
    max_nonfinite_steps: InitVar[int] = 5
    update_check: InitVar[UpdateCheck | None] = None
    clock: Callable[[], float] = time.monotonic
    pad_to: InitVar[int | None] = None
    owes_export: bool = False
    """Whether an export was due with the newest checkpoint and is not written yet; saved in the checkpoint."""
    stopped: bool = False
    """Whether a signal ended the run. A run that a callback ended early counts as complete."""
    train_step: TrainStep = field(init=False)
    peers: Peers = field(init=False)
    recovery: Recovery = field(init=False)
    saver: CheckpointSaver = field(init=False)
    _unread: StepReportFuture | None = None
    _last_report: StepReport | None = None
    _timer_starts: list[float] = field(default_factory=list)
    _step_start: float = 0.0
    _is_over: bool = False

    def __post_init__(self, max_nonfinite_steps: int, update_check: UpdateCheck | None, pad_to: int | None) -> None:
        self.peers = Peers(self.runtime, self._poll, len(self.callbacks))
        self.train_step = TrainStep(
            self.model,
            self.runtime,
            self.peers,
            self.host,
            self.progress,
            update_check,
            self.seed,
            self.rate_factor,
            pad_to=pad_to,
        )
        self.recovery = Recovery(self.train_step, self.peers, self.host, self.progress, max_nonfinite_steps)
        self.saver = CheckpointSaver(self.runtime, self.host)

    def run(self) -> None:
        """Trains from the current progress to the last step. Raises Diverged, StorageError (of the final save),
        PeerLost."""
        with self.begin_run():
            for step in self.batches:
                self.run_step(step)
                if self.is_over:
                    break

    @contextmanager
    def begin_run(self) -> Iterator[None]:
        """Context manager around the steps of a run: calls callbacks that are due before the first step, and completes
        the last save. An exception within leaves no partial save."""
        try:
            self._begin()
            yield
            self._finish()
        except BaseException:
            self.host.give_up_save()
            raise

    def run_step(self, step: StepBatches) -> None:
        """Runs one step, and everything that is due after it."""
        if self.progress.step == self.progress.first_step or self.progress.epoch_ends:
            self.host.epoch_begins(self, step.epoch)
        future = self.recovery.run_step_or_retry(step)
        self._advance(step, future)
        signals = self.peers.exchange(step.broken)
        self._act_between_steps(signals, step.broken)

    def run_step_and_report(self, step: StepBatches) -> StepReport:
        """Like `run_step`, but waits for the step's report and returns it."""
        self.run_step(step)
        if self._unread is not None:
            self._read_newest()
        assert self._last_report is not None
        return self._last_report

    def save_now(self) -> None:
        """Writes a checkpoint of the last step, if it has none yet, and waits for it."""
        if self._unread is not None:
            self._read_newest()
        if self.saver.saved_step != self.progress.step:
            self.saver.save(self, self.progress.step, is_final=True, at_once=True)
        self.saver.finish()

    @property
    def is_over(self) -> bool:
        """Whether a callback or a signal has ended the run, or its last step is done."""
        return self._is_over or self.progress.is_done

    def _begin(self) -> None:
        """Calls the callbacks that are due before the first step."""
        with_state = [type(callback).__name__ for callback in self.callbacks if callback.state()]
        assert len({*with_state}) == len(with_state), with_state
        self._step_start = self.clock()
        self._timer_starts = [self._step_start] * len(self.callbacks)
        if self.progress.step == self.progress.first_step:
            for callback in self.callbacks:
                if callback.due(self.progress):
                    self._call(callback, None)
            self.runtime.barrier()
            self._step_start = self.clock()

    def _advance(self, step: StepBatches, future: StepReportFuture) -> None:
        """Advances progress, and reads the report of the previous step, which has arrived by now."""
        seconds = self.clock() - self._step_start
        self._step_start += seconds
        future.report = replace(future.report, seconds=seconds)
        self.progress.advance(step, seconds, self._rates_by_part(future.report))
        if self._unread is not None:
            self._read(self._unread)
        self._unread = future

    def _act_between_steps(self, signals: PeerSignals, corrupt: Sequence[str]) -> None:
        """Acts on signals and calls due callbacks: every process does what any of them requests."""
        if signals & (PeerSignals.FOLDER_LOST | PeerSignals.CORRUPT_SAMPLES):
            self.recovery.act_on(signals, corrupt)
        if PeerSignals.SAVING not in signals:
            self.saver.finish()
        due = self._due_callbacks(signals)
        if not due and not signals & (PeerSignals.SAVE | PeerSignals.STOP) and self.train_step.update_check is None:
            return
        report, action = self._read_newest(), Action.NOTHING
        for callback in due:
            action |= self._call(callback, report)
        if due:  # a callback may run in the first process only, and for long
            self.runtime.barrier()
            action = Action(self.runtime.agree(action.value))
        self.stopped = self.stopped or PeerSignals.STOP in signals
        action |= Action.SAVE if PeerSignals.SAVE in signals else Action.NOTHING
        action |= Action.STOP if self.stopped else Action.NOTHING
        self._save_and_export(action)
        self._is_over = Action.STOP in action
        self._step_start = self.clock()  # saving and previews do not count as step time

    def _due_callbacks(self, signals: PeerSignals) -> list[Callback]:
        due = []
        for number, callback in enumerate(self.callbacks):
            timer_is_due = PeerSignals.timer(number) in signals
            if timer_is_due:
                self._timer_starts[number] = self.clock()
            is_asked = callback.generates_on_request and PeerSignals.PREVIEW in signals
            if not callback.receives_delayed_reports and (timer_is_due or is_asked or callback.due(self.progress)):
                due.append(callback)
        return due

    def _poll(self, corrupt: Sequence[str]) -> PeerSignals:
        """The signals that this process sends. corrupt: keys of the step's corrupt samples in this process."""
        signals = self.host.requests()
        if self.runtime.is_first:
            for number, (callback, start) in enumerate(zip(self.callbacks, self._timer_starts, strict=True)):
                signals |= PeerSignals.timer(number) if self.clock() - start >= 60 * callback.minutes else NONE
        signals |= PeerSignals.CORRUPT_SAMPLES if set(corrupt).difference(self.progress.broken) else NONE
        signals |= PeerSignals.FOLDER_LOST if self.host.loss_of_folder() else NONE
        return signals | (PeerSignals.SAVING if self.host.is_saving() else NONE)

    def _finish(self) -> None:
        if self._unread is not None:
            self._read_newest()
        self.saver.finish()
        if self.saver.failure:
            raise StorageError(self.saver.failure, code="E1704")

    # --- reports ---

    def _read_newest(self) -> StepReport:
        """Reads the report of the last step, which saves and callbacks need now."""
        assert self._unread is not None
        report, self._unread = self._read(self._unread), None
        return report

    def _read(self, future: StepReportFuture) -> StepReport:
        device = self.runtime.device
        report = future.result(torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0)
        self.recovery.count_bad_step(report)
        if report.applied:
            self.progress.applied += 1
            self._check_movement(self._rates_by_part(report))
        for callback in self.callbacks:
            if callback.receives_delayed_reports:
                self._call(callback, report)
        self._last_report = report
        return report

    def _check_movement(self, rates: Mapping[str, float]) -> None:
        check, update = self.train_step.update_check, self.model.update
        base = {group.name: self.model.optim.rate_of(group.rate_key) for group in update.groups}
        if check is not None and check.count_update(rates, update.largest_by_part(base)):
            check.check_movement(update.masters, self.progress.rate_peak, self.runtime.agree)
            self.train_step.update_check = None

    def _rates_by_part(self, report: StepReport) -> dict[str, float]:
        return self.model.update.largest_by_part(report.rates)

    def _call(self, callback: Callback, report: StepReport | None) -> Action:
        if not (callback.on_all_ranks or self.runtime.is_first):
            return Action.NOTHING
        try:
            return callback.on_step(report, self.progress)
        except StorageError as error:
            self.host.warn(f"{type(callback).__name__}: {error.message}; training continues without it")
            return Action.NOTHING

    # --- checkpoints ---

    def _save_and_export(self, action: Action) -> None:
        self.owes_export = Action.EXPORT in action
        step = self.progress.step
        if action & (Action.SAVE | Action.STOP) and self.saver.saved_step != step:
            is_final = Action.STOP in action or self.progress.is_done
            self.saver.save(self, step, is_final=is_final, at_once=is_final or self.owes_export)
        if self.owes_export:
            self.saver.finish()
            try:
                self.host.export(self)
            except StorageError as error:
                self.host.warn(f"the export of step {step} could not be written: {error.message}")
            self.owes_export = False
            self.runtime.barrier()

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor to save in a checkpoint, by flat name."""
        return self.model.tensors()

    def state(self) -> dict[str, Any]:
        """Everything else to save in a checkpoint, as JSON."""
        micro_batch = self.train_step.micro_batch
        return (
            {
                "progress": self.progress.state(),
                "callbacks": {type(o).__name__: o.state() for o in self.callbacks if o.state()},
            }
            | ({"owed": ["export"]} if self.owes_export else {})
            | ({"micro_batch": micro_batch} if micro_batch is not None else {})
        )

    def load(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Restores a checkpoint's tensors and state."""
        self.model.load(tensors)
        self.progress.load(state["progress"], last_step=self.progress.last_step)
        self.owes_export = "export" in state.get("owed", ())
        self.train_step.micro_batch = state.get("micro_batch")
        for callback in self.callbacks:
            callback.load(state["callbacks"].get(type(callback).__name__, {}))
        if self.progress.applied >= UpdateCheck.updates:
            self.train_step.update_check = None
