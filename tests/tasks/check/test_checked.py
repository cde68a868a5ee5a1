"""Results of a check: each problem once, and whether a step fits."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mezzotint.errors import DatasetError, RecipeError
from mezzotint.settings.reading.read import read_text
from mezzotint.tasks.check._checked import Checked


def test_problems_are_recorded_once_and_bugs_are_raised() -> None:
    reading = read_text("schema: 1")
    checked = Checked(reading, reading.recipe, 1)
    for error in (RecipeError("a"), DatasetError("a"), RecipeError("a")):
        with checked.collect_problems():
            raise error
    assert [type(error) for error in checked.problems] == [RecipeError, DatasetError]
    with pytest.raises(ZeroDivisionError), checked.collect_problems():
        1 / 0  # noqa: B018
    assert checked.fits is None
    peak: Any = SimpleNamespace(peak=10)
    assert [replace(checked, memory=peak, free_memory=free).fits for free in (None, 9, 10)] == [None, False, True]
