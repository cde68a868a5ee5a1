"""What watches a run. Callbacks look and action; the trainer acts. To add one: a class here, its settings in
`recipe/sections/run.py`.

A callback that fails because the disk does never ends the training: the trainer says so once and goes on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import Flag, auto
from typing import Any

from mezzotint.recipe.base import Every
from mezzotint.stages import StepReport
from mezzotint.training.progress import Progress


class Action(Flag):
    """What a callback may ask of the trainer."""

    NOTHING = 0
    SAVE = auto()
    EXPORT = auto()
    STOP = auto()


class Callback(ABC):
    """Looks at a run from between two steps.

    `every`: when it is due; None is at every step. `intervals`: the same where there may be several. Callbacks that are
    due see the report of the step just made, so the trainer waits for it; `follows = True` marks those that take every
    report one step late instead, which costs no waiting. `on_all_ranks`: whether it looks in every process (collective
    work) or in the first alone.
    """

    every: Every | None = None
    intervals: tuple[Every, ...] = ()
    follows: bool = False
    at_start: bool = False
    at_end: bool = False
    on_all_ranks: bool = False

    def due(self, progress: Progress) -> bool:
        """Whether it wants to look after the step just made. Intervals in minutes are the trainer's business."""
        if progress.step == progress.first_step:
            return self.at_start
        if progress.is_done and self.at_end:
            return True
        return any(is_due(every, progress) for every in self.intervals or (self.every,))

    @abstractmethod
    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Looks at a step's report (None before the first step)."""

    def state(self) -> dict[str, Any]:
        """What it remembers, as JSON, for the checkpoint."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:  # noqa: B027  most remember nothing
        """Takes back what `state` gave."""

    def close(self) -> None:  # noqa: B027  most hold nothing open
        """The run has ended, one way or another."""


def is_due(every: Every | None, progress: Progress) -> bool:
    """Whether an interval of steps or epochs ends with the step just made. Minutes are the trainer's business."""
    if every is None or progress.step == progress.first_step:
        return False
    match every.unit:
        case "steps":
            return progress.step % int(every.count) == 0
        case "epochs":
            return progress.epoch_ends and (progress.epoch + 1) % int(every.count) == 0
        case "minutes":
            return False
        case _:
            raise AssertionError(every.unit)


class Saver(Callback):
    """Wishes for checkpoints."""

    at_end = True

    def __init__(self, every: Sequence[Every]) -> None:
        self.intervals = tuple(every)

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        return Action.SAVE


class Exporter(Callback):
    """Wishes for exports during the run; the one at the end is the task's. from_epoch: intervals in epochs begin after
    so many of them."""

    def __init__(self, every: Sequence[Every], from_epoch: int = 0) -> None:
        self.intervals = tuple(every)
        self.from_epoch = from_epoch

    def due(self, progress: Progress) -> bool:
        """As other callbacks; not yet by epochs before `from_epoch`."""
        early = progress.epoch + 1 < self.from_epoch
        return any(is_due(every, progress) for every in self.intervals if not (early and every.unit == "epochs"))

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        return Action.EXPORT
