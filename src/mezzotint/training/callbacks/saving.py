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
    """Requests checkpoints."""

    at_end = True
    order = 3
    every = None

    def __init__(self, every: Sequence[Every]) -> None:
        self.intervals = tuple(every)

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        return Action.SAVE

    def on_settings_changed(self, run: RunSettings, sample: SampleSettings) -> None:
        self.intervals = run.save.every


class Exporter(Callback):
    """Requests exports during the run; the task writes the one at the end. from_epoch: intervals in epochs start after
    this many epochs."""

    order = 3

    every = None

    def __init__(self, every: Sequence[Every], from_epoch: int = 0) -> None:
        self.intervals = tuple(every)
        self.from_epoch = from_epoch

    def due(self, progress: Progress) -> bool:
        """As for other callbacks, but intervals in epochs are ignored before `from_epoch`."""
        early = progress.epoch + 1 < self.from_epoch
        return any(is_due(every, progress) for every in self.intervals if not (early and every.unit == "epochs"))

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        return Action.EXPORT

    def on_settings_changed(self, run: RunSettings, sample: SampleSettings) -> None:
        self.intervals, self.from_epoch = run.export.every, run.export.from_epoch


def create_callbacks(setup: Setup) -> Iterator[Callback]:
    """Always both: intervals can be added during the run."""
    yield Exporter(setup.run.export.every, setup.run.export.from_epoch)
    yield Saver(setup.run.save.every)
