"""How a run goes: settings that need another one."""

from __future__ import annotations

import pytest

from support.contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["run.export.parts=trained", "run.export.folder=x"], "needs whole models"),
        (["run.export.name={size}"], "accepts only {name}, {what}"),
        (["run.scaler.stages=[[5, 2, 9], [5, 2, 9]]"], "must increase"),
        (["run.start.optimizer=x"], "set run.start.step to its number of steps"),
        (["run.extend=5 minutes"], "counts steps or epochs"),
        (["run.callbacks={spikez: {}}"], "run.callbacks: "),
    ],
)
def test_conflicting_settings_are_refused_with_a_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
