"""The problems that a recipe with conflicting settings reports."""

from __future__ import annotations

import pytest

from mezzotint.errors import RecipeError
from mezzotint.settings.reading.read import read_text


def contradiction(*settings: str) -> str:
    """The one problem of a recipe with such settings, which is of code E1003."""
    with pytest.raises(RecipeError) as caught:
        read_text("schema: 1", overrides=settings)
    [problem] = caught.value.problems
    assert problem.code == "E1003"
    return problem.message
