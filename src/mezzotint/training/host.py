"""What a run's owner does for its trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mezzotint.stages import StepReport

if TYPE_CHECKING:
    from mezzotint.training.trainer import Trainer


class RunHost:
    """Saves, exports, passes signals on and tells the user. Here each of them does nothing, which is all that a dry run
    and a benchmark want; `train` has its own."""

    def save(self, trainer: Trainer) -> None:
        """Writes a checkpoint of the trainer's `tensors()` and `state()`."""

    def export(self, trainer: Trainer) -> None:
        """Writes the model as the trainer has it now."""

    def requests(self) -> int:
        """Flags that signals have set since the last call (`training.interrupts`)."""
        return 0

    def epoch_begins(self, trainer: Trainer, epoch: int) -> None:
        """Called before an epoch's first step."""

    def bad_step(self, report: StepReport) -> None:
        """Called for a step that was not finite."""

    def warn(self, text: str) -> None:
        """Something failed and the training goes on."""
