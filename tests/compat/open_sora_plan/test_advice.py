"""Advice about what this trainer adds."""

from __future__ import annotations

import pytest

from mezzotint.settings import advice
from mezzotint.settings.reading.read import read_text


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["model.family=latte", "data.flip=0.5"], "data.flip"),
    ],
)
def test_deviations_from_the_advice_are_reported(words: list[str], path: str) -> None:
    recipe = read_text("schema: 1", overrides=["optim.lr=1e-6", *words]).recipe
    assert [note.partition(" ")[0] for note in advice.notes(recipe)] == [path]
