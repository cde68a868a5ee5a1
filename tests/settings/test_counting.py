"""Numbers with their nouns."""

from __future__ import annotations

import pytest

from mezzotint.settings.counting import format_bytes, format_count, format_duration, nearest_multiples


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
def test_noun_agrees_with_its_number(number: int, noun: str, words: str) -> None:
    assert format_count(number, noun) == words


def test_neighbouring_multiples_are_named() -> None:
    assert nearest_multiples(70, 8) == "write 64 or 72"
    assert nearest_multiples(5, 8) == "write 8"


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (45_300, "45.3 kB"),
        (3_440_000_000, "3.44 GB"),
        (999_900_000, "1,000 MB"),
        (2.5e15, "2,500 TB"),
    ],
)
def test_size_has_three_digits_and_a_decimal_unit(num_bytes: float, words: str) -> None:
    assert format_bytes(num_bytes) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.3149, "0.315 s"), (12.34, "12.3 s"), (59.97, "1 min 0 s"), (250, "4 min 10 s"), (7980, "2 h 13 min"),
     (183_600, "2 d 3 h")],
)  # fmt: skip
def test_duration_has_its_two_largest_units(seconds: float, words: str) -> None:
    assert format_duration(seconds) == words
