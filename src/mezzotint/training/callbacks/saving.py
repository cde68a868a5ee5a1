"""Checkpoints and exports, when they are due."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mezzotint.settings.base import Every
from mezzotint.settings.sections.run import RunSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.stages import StepReport
from mezzotint.training.callbacks.base import Action, Callback, Setup, is_due
from mezzotint.training.progress import Progress


class Saver(Callback):
    """Wishes for checkpoints."""

    at_end = True
    place = 3
    every = None

    def __init__(self, every: Sequence[Every]) -> None:
        self.intervals = tuple(every)

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        return Action.SAVE

    def replaced(self, run: RunSettings, sample: SampleSettings) -> None:
        self.intervals = run.save.every


class Exporter(Callback):
    """Wishes for exports during the run; the one at the end is the task's. from_epoch: intervals in epochs begin after
    so many of them."""

    place = 3

    every = None

    def __init__(self, every: Sequence[Every], from_epoch: int = 0) -> None:
        self.intervals = tuple(every)
        self.from_epoch = from_epoch

    def due(self, progress: Progress) -> bool:
        """As other callbacks; not yet by epochs before `from_epoch`."""
        early = progress.epoch + 1 < self.from_epoch
        return any(is_due(every, progress) for every in self.intervals if not (early and every.unit == "epochs"))

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        return Action.EXPORT

    def replaced(self, run: RunSettings, sample: SampleSettings) -> None:
        self.intervals, self.from_epoch = run.export.every, run.export.from_epoch


def opened(setup: Setup) -> Iterator[Callback]:
    """Both, always: whether there are intervals may change while a run goes."""
    yield Exporter(setup.run.export.every, setup.run.export.from_epoch)
    yield Saver(setup.run.save.every)
