"""What is said of a value that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.settings.reading import wording


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ({"a": 1, "*b": [2]}, "{a: 1, *b: [2]}"),
        ({}, "{}"),
        ({f"key {number}": number for number in range(9)}, "a mapping of 9"),
        ([1, None, "x"], "[1, null, 'x']"),
        (list(range(60)), "a list of 60"),
        (0.00001, "1e-05"),
        (0.1 + 0.2, "0.30000000000000004"),
        (10**60, "a number of 61 digits"),
        ("x" * 70, "'" + "x" * 57 + "…'"),
    ],
)
def test_values_are_shortened_in_recipe_syntax(value: Any, text: str) -> None:
    assert wording.format_value(value) == text


@pytest.mark.parametrize(
    ("entry", "answer"),
    [
        ({"type": "greater_than", "input": 0, "ctx": {"gt": 0}}, ("E1007", "must be greater than 0, got 0")),
        ({"type": "int_parsing", "input": "two"}, ("E1002", "must be a whole number, got 'two'")),
        ({"type": "string_type", "input": 5}, ("E1002", "must be a text, got 5; put it in quotes")),
        ({"type": "too_long", "input": [], "ctx": {"max_length": 2, "actual_length": 3}},
         ("E1002", "must have at most 2 entries, got 3")),
        ({"type": "model_type", "input": None},
         ("E1002", "there is nothing below this key; remove the line or add settings")),
        ({"type": "literal_error", "input": "x", "ctx": {"expected": "'a' or 'b'"}},
         ("E1007", "must be a or b, got 'x'")),
        ({"type": "something new", "input": 1.5}, ("E1002", "cannot be used here, got 1.5")),
    ],
)  # fmt: skip
def test_pydantic_errors_have_plain_messages(entry: dict[str, Any], answer: tuple[str, str]) -> None:
    assert wording.message_for(entry, None) == answer
