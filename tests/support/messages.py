"""Checks of error messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mezzotint.errors import MezzotintError, Problem, RecipeError
from mezzotint.settings.reading.read import read_text


@contextmanager
def refused(code: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[MezzotintError]]:
    """Expects an error of the reader's world of this code, whose sentence matches."""
    with pytest.raises(MezzotintError, match=match) as caught:
        yield caught
    assert caught.value.code == code


def problems_of(text: str, *overrides: str) -> list[Problem]:
    """Everything that is wrong with a recipe, which is called sdxl.yaml."""
    with pytest.raises(RecipeError) as caught:
        read_text(text, "sdxl.yaml", overrides)
    return list(caught.value.problems)


def only_problem(text: str, *overrides: str) -> Problem:
    """The one thing that is wrong with it."""
    (problem,) = problems_of(text, *overrides)
    return problem


def refusal(*words: str) -> str:
    """What is said of a recipe of `key=value` words that cannot be used."""
    with pytest.raises(RecipeError) as caught:
        read_text("schema: 1", overrides=list(words))
    return str(caught.value)
