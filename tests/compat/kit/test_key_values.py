"""Arguments of the form key=value."""

from __future__ import annotations

from typing import Any

import pytest

from mezzotint.compat.kit.dialect import Draft, row, waits
from mezzotint.compat.kit.key_values import read_arguments, read_literals
from mezzotint.settings.reading.translation import Launched

ROWS = (row("size", 4, "", "a number", least=1), row("name", str, "", "a text"), waits("rate", "0", "rates", "a rate"))
KNOWN: dict[str, Any] = {"betas": (0.9, 0.999), "eps": 1e-8, "fused": False, "beta3": None}


def draft(*words: str) -> Draft:
    return Draft({}, {"args": words}, frozenset(), Launched())


def test_arguments_have_their_types_and_defaults() -> None:
    assert read_arguments(draft("size=8", "name=a=b", "rate=0.0"), "args", ROWS) == {
        "size": 8, "name": "a=b", "rate": "0.0",
    }  # fmt: skip
    assert read_arguments(draft(), "args", ROWS) == {"size": 4, "name": None, "rate": "0"}


def test_literals_are_those_of_python() -> None:
    words = ("betas=0.9,0.99", "eps=1e-7", "fused=True", "beta3=None")
    assert read_literals(draft(*words), "args", KNOWN) == {
        "betas": (0.9, 0.99), "eps": 1e-7, "fused": True, "beta3": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("word", "message", "code"),
    [
        ("size", "size has no value", "E1017"),
        ("sise=8", "unknown argument sise", "E1016"),
        ("size=x", "size must be an integer, got 'x'", "E1017"),
        ("size=0", "size must be 1 or more, got 0", "E1017"),
        ("rate=0.5", "rate needs rates, which Mezzotint does not have yet", "E1018"),
    ],
)
def test_wrong_arguments_are_refused(word: str, message: str, code: str) -> None:
    one = draft(word)
    read_arguments(one, "args", ROWS)
    assert [(problem.where, problem.message, problem.code) for problem in one.problems] == [("--args", message, code)]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("betas=1", "betas must be two numbers, got 1"),
        ("eps=open('x')", "eps must be a number, got open('x')"),
        ("fused=1", "fused must be True or False, got 1"),
    ],
)
def test_wrong_literals_are_refused(word: str, message: str) -> None:
    one = draft(word)
    assert read_literals(one, "args", KNOWN) == {}
    assert [problem.message for problem in one.problems] == [message]
