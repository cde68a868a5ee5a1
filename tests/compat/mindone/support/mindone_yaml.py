"""Commands of `mindone-sdxl` with changed YAML files: the documented one, and one that ships."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from foreign_lines import ALONE

from mezzotint.compat.mindone.dialect import SHIPPED
from mezzotint.errors import Problem, RecipeError
from mezzotint.settings.reading.translation import Launched
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.reading import foreign

PLAIN = re.sub(
    r"  scheduler_config:\n(?:    .*\n)+", "", (SHIPPED / "sd_xl_base_finetune_910b.yaml").read_text("utf-8")
)
"""A file that ships, without the warm-up that tests replace."""
DOCUMENT = (Path(__file__).parents[1] / "document.yaml").read_text("utf-8")
"""MindONE's document on hyper-parameters, with its dots filled in."""


def reading(text: str, *words: str) -> Any:
    """A command with a YAML of such a text, in the current folder."""
    Path("mine.yaml").write_text(text)
    return foreign.read_command_line("mindone-sdxl", ["--config=mine.yaml", "--data_path=images", *words], (), ALONE)


def settings(text: str, *words: str, launched: Launched = ALONE) -> tuple[Any, str]:
    """The settings of a command, before it is a recipe, and its notes."""
    Path("mine.yaml").write_text(text)
    line = ["--config=mine.yaml", "--data_path=images", *words]
    translation = foreign.find_dialect("mindone-sdxl").translate(line, launched)
    return translation.settings, "\n".join(map(str, translation.notes))


def recipe(text: str, *words: str) -> Recipe:
    translated: Recipe = reading(text, *words).recipe
    return translated


def notes(text: str, *words: str) -> str:
    return "\n".join(reading(text, *words).notes)


def replaced(old: str, new: str, text: str = PLAIN) -> str:
    assert old in text, old
    return text.replace(old, new)


def problems(text: str, *words: str) -> tuple[Problem, ...]:
    with pytest.raises(RecipeError) as caught:
        reading(text, *words)
    assert caught.value.exit_status == 2
    return caught.value.problems


def refused(text: str) -> tuple[set[str], str]:
    """The codes of the problems of a YAML, and their messages."""
    wrong = problems(text)
    return {problem.code for problem in wrong}, " ".join(f"{problem.message}; {problem.remedy}" for problem in wrong)
