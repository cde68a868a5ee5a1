"""What of new words excludes another."""

from __future__ import annotations

import pytest

from support.contradictions import contradiction


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ["model.train=[tokens]", 'model.tokens.words={"<a>": toy}', 'model.tokens.files={"<a>": a.safetensors}'],
            "both define <a>",
        ),
        (
            ["model.train=[tokens]", 'model.tokens.words={"two words": toy}'],
            "is not a token name; write one without spaces",
        ),
        (
            ["model.train=[tokens]", 'model.tokens.words={"<a>": " "}'],
            "<a> has no initial word; write one with a similar meaning",
        ),
        (["model.tokens.vectors=2"], "is for model.tokens.words, which is empty"),
    ],
)
def test_conflicting_settings_are_refused_with_a_remedy(settings: list[str], sentence: str) -> None:
    assert sentence in contradiction(*settings)
