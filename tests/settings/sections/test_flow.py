"""What of a density's settings excludes another."""

from __future__ import annotations

import pytest

from support.contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["objective.flow.sigmas=[0.5,0.5]"], "must be two numbers with 0 ≤ first < second ≤ 1, got 0.5, 0.5"),
        (["objective.flow.density=mode", "objective.flow.std=2"], "is for the density"),
    ],
)
def test_conflicting_settings_are_refused_with_a_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
