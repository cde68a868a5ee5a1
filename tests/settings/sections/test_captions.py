"""What of a caption's settings excludes another."""

from __future__ import annotations

import pytest

from support.contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["data.captions.clean=true", "data.captions.wildcards=true"], "leave out one of them"),
        (['data.captions.prefix="a\\nb"'], "must be one line of text"),
    ],
)
def test_conflicting_settings_are_refused_with_a_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
