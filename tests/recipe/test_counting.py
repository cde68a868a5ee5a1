"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from mezzotint.recipe.counting import counted


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [(1, "step", "1 step"), (0, "step", "0 steps"), (1200, "batch", "1,200 batches"), (2, "entry", "2 entries")],
)
def test_a_noun_follows_its_number(number: int, noun: str, words: str) -> None:
    assert counted(number, noun) == words
