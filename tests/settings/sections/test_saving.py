"""What of saving, exporting and going back excludes another."""

from __future__ import annotations

import pytest

from support.contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ["run.export.parts=trained", "run.export.folder=model"],
            "needs whole models, and run.export.parts=trained writes none",
        ),
        (
            ["run.on_divergence=roll-back", "run.roll_back.skip=false"],
            "with the same result; write a run.roll_back.factor",
        ),
    ],
)
def test_conflicting_settings_are_refused_with_a_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
