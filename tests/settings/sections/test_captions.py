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
def test_settings_that_do_not_go_together_are_told_with_the_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
