"""Settings of a model that one family alone has, or that exclude each other."""

from __future__ import annotations

import pytest

from support.contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["model.flux.guidance=3"], "it belongs to family flux; leave it out"),
        (["model.over=[a]", "model.weights=random"], "leave one of them out"),
    ],
)
def test_conflicting_settings_are_refused_with_a_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
