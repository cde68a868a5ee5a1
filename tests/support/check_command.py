"""Fixtures and helpers of the tests of `mezzotint check`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mezzotint.errors import MezzotintError
from mezzotint.settings.reading.read import read
from mezzotint.tasks.check import check


@pytest.fixture
def check_of(world: Any, unmeasured: None) -> Callable[..., check.Checked]:
    """`check_of(optim__lr=…)`: the check of a short run."""

    def look(**settings: Any) -> check.Checked:
        recipe, *words = world.words("checked", **settings)
        return check.check(read(recipe, words))

    return look


def checked(*words: str, **named: Any) -> check.Checked:
    return check.check(read("recipe.yaml", words), **named)


def codes(errors: Sequence[MezzotintError]) -> list[str]:
    return [error.code for error in errors]


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
