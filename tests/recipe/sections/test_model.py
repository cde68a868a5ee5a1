"""Settings of a model that one family alone has, or that exclude each other."""

from __future__ import annotations

import pytest
from contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["model.max_tokens=77"], "its text encoder reads 77 tokens; leave it out"),
        (["model.over=[a]", "model.weights=random"], "leave one of them out"),
    ],
)
def test_settings_that_do_not_go_together_are_told_with_the_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
