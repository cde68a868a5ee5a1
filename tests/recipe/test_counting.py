"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from mezzotint.recipe.counting import counted, nearest_multiples


@pytest.mark.parametrize(
    ("number", "noun", "words"),
    [
        (1, "step", "1 step"),
        (0, "step", "0 steps"),
        (1200, "batch", "1,200 batches"),
        (2, "entry", "2 entries"),
        (3, "copy", "3 copies"),
    ],
)
def test_a_noun_follows_its_number(number: int, noun: str, words: str) -> None:
    assert counted(number, noun) == words


def test_the_multiples_around_a_number_are_named() -> None:
    assert nearest_multiples(70, 8) == "write 64 or 72"
    assert nearest_multiples(5, 8) == "write 8"
