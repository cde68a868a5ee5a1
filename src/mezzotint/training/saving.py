"""Checkpoints during training: one at a time, started and completed by all processes together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mezzotint.errors import Diverged, StorageError
from mezzotint.runtimes.base import Runtime
from mezzotint.training.requests import RunHost


@dataclass(frozen=True, slots=True)
class SaveOutcome:
    """was_refused: whether a write failed on any process. message: why, if it failed on this process."""

    was_refused: bool
    message: str


@dataclass(slots=True)
class CheckpointSaver:
    """saved_step: of the newest checkpoint, -1 before the first. failure: why the final one could not be written."""

    runtime: Runtime
    host: RunHost[Any]
    saved_step: int = -1
    failure: str = ""
    _step_being_saved: int = -1

    def save(self, trainer: Any, step: int, *, is_final: bool, at_once: bool) -> None:
        """Starts a checkpoint of a step. at_once: it is complete on return. A failed write is a warning, and the next
        checkpoint is the next attempt; for the final checkpoint it is stored in `failure`."""
        self.finish()
        outcome = self._run_on_all_ranks(step, lambda: self.host.save(trainer, at_once=at_once))
        if not outcome.was_refused:
            self.saved_step, self._step_being_saved = step, -1 if at_once else step
        elif is_final:
            self.failure = outcome.message or "another process could not save the final checkpoint"
        elif outcome.message:
            self.host.warn(outcome.message)

    def finish(self) -> None:
        """Waits for the checkpoint that is being written, if any."""
        if self._step_being_saved < 0:
            return
        step, self._step_being_saved = self._step_being_saved, -1
        outcome = self._run_on_all_ranks(step, self.host.end_save)
        if outcome.was_refused:
            self.saved_step = -1
        if outcome.message:
            self.host.warn(outcome.message)

    def _run_on_all_ranks(self, step: int, action: Callable[[], None]) -> SaveOutcome:
        """Runs a part of saving on every process. Raises Diverged E1603 on every process if weights are not finite,
        which only the first may have noticed."""
        message, diverged = "", None
        self.runtime.set_phase(f"at the checkpoint of step {step}")
        self.runtime.agree(0)  # detects a hanging process: after this, all wait as long as one writes
        try:
            action()
        except StorageError as error:
            message = f"the checkpoint of step {step} could not be saved: {error.message}"
        except Diverged as error:
            diverged = error
        self.runtime.barrier()  # the first process may have written for long
        flags = self.runtime.agree(bool(message) | 2 * (diverged is not None))
        if flags & 2:
            reason = diverged.message if diverged else "the first process found weights that are not finite"
            raise Diverged(reason, code="E1603", step=step) from diverged
        return SaveOutcome(bool(flags), message)
