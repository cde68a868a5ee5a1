"""Intervals of callbacks, and scalars passed to all sinks."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from mezzotint.errors import StorageError
from mezzotint.settings.base import Every
from mezzotint.stages import StepReport
from mezzotint.training.callbacks.base import Action, Callback, Setup, is_due
from mezzotint.training.progress import Progress


class Kept(Callback):
    """Records scalars, and raises an error afterwards if requested."""

    def __init__(self, refuses: bool = False) -> None:
        self.refuses, self.seen = refuses, list[int]()

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        return Action.NOTHING

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        self.seen.append(step)
        if self.refuses:
            raise StorageError("the disk is full")


def setup(*callbacks: Callback, is_first: bool = True) -> Setup:
    others: dict[str, Any] = dict.fromkeys(Setup.__slots__)
    runtime = SimpleNamespace(is_first=is_first, shares={})
    return Setup(**others | {"runtime": runtime, "every_callback": list(callbacks)})


def test_scalars_reach_all_sinks_on_the_first_process_only() -> None:
    callbacks = [Kept(refuses=True), Kept()]
    with pytest.raises(StorageError):
        setup(*callbacks).numbers(3, {"val/loss": 1.0})
    setup(*callbacks, is_first=False).numbers(4, {"val/loss": 1.0})
    assert [one.seen for one in callbacks] == [[3], [3]]


@pytest.mark.parametrize(("every", "due"), [("2 steps", [2, 4]), ("1 epoch", [3]), ("2 epochs", []), ("5 minutes", [])])
def test_intervals_of_steps_and_epochs_end_with_a_step(every: str, due: list[int]) -> None:
    progress = [Progress(step=step, last_step=9, epoch=0, epoch_ends=step == 3) for step in range(5)]
    assert [one.step for one in progress if is_due(Every.parse(every), one)] == due


def test_shortest_interval_in_minutes_counts() -> None:
    callback = Kept()
    callback.intervals = tuple(map(Every.parse, ("9 minutes", "2 minutes", "1 step")))
    assert callback.minutes == 2
    assert Kept().minutes == float("inf")
