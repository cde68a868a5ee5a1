"""Checkpoints and exports at their intervals, which may change during a run."""

from __future__ import annotations

from mezzotint.settings.base import Every
from mezzotint.settings.sections.run import RunSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.training.callbacks.base import Action
from mezzotint.training.callbacks.saving import Exporter, Saver
from mezzotint.training.progress import Progress


def at(step: int, epoch: int = 0) -> Progress:
    return Progress(step=step, last_step=10, epoch=epoch, epoch_ends=True)


def test_last_step_is_saved_but_not_exported() -> None:
    saver, exporter = Saver([Every.parse("4 steps")]), Exporter([Every.parse("4 steps")])
    assert [saver.due(at(step)) for step in (0, 3, 4, 10)] == [False, False, True, True]
    assert [exporter.due(at(step)) for step in (0, 3, 4, 10)] == [False, False, True, False]
    assert (saver.on_step(None, at(4)), exporter.on_step(None, at(4))) == (Action.SAVE, Action.EXPORT)


def test_exports_start_at_first_epoch_and_settings_can_change() -> None:
    exporter = Exporter([Every.parse("1 epoch")], from_epoch=3)
    assert [exporter.due(at(1, epoch)) for epoch in range(4)] == [False, False, True, True]
    exporter.on_settings_changed(RunSettings(export={"every": [5]}), SampleSettings())
    assert [exporter.due(at(step, 9)) for step in (4, 5)] == [False, True]
