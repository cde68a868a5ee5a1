"""Command lines of musubi-tuner under test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from foreign_lines import flat

from mezzotint.compat.musubi._scripts import SCRIPTS
from mezzotint.compat.musubi.dialect import DIALECT
from mezzotint.errors import Problem, RecipeError
from mezzotint.settings.reading.translation import Launched, Translation
from mezzotint.tasks.reading import foreign

DATA = Path(__file__).parent / "data.toml"
EDITS = DATA.with_name("edits.toml")
"""The same with control images."""


def line(script: str, *words: str) -> list[str]:
    """A short valid command of a script, with more options."""
    one = SCRIPTS[script]
    module = (f"--network_module={one.network}",) if one.network else ()
    version = ("--model_version=klein-base-4b",) if one.family == "flux2" else ()
    file = EDITS if one.family == "flux" else DATA
    data = () if any(word.startswith("--dataset_config") for word in words) else (f"--dataset_config={file}",)
    return [f"{script}.py", "--dit=base", "--optimizer_type=AdamW", "--output_dir=out", *data, *module, *version,
            *words]  # fmt: skip


def translate(script: str, *words: str, launched: Launched | None = None) -> Translation:
    """The translation of a command of a script."""
    return DIALECT.translate(line(script, *words), launched or Launched())


def settings(script: str, *words: str) -> dict[str, Any]:
    """The settings of a command, by path."""
    return flat(translate(script, *words).settings)


def changed(script: str, *words: str) -> dict[str, Any]:
    """The settings that differ from those of the shortest command, None for those left out."""
    before, after = settings(script), settings(script, *words)
    return {path: after.get(path) for path in {*before, *after} if before.get(path, "-") != after.get(path, "-")}


def recipe(script: str, *words: str) -> Any:
    """The recipe of a command."""
    return foreign.read_command_line("musubi", line(script, *words), (), Launched()).recipe


def notes(script: str, *words: str) -> str:
    """All notes of a command as one text."""
    return "\n".join(map(str, translate(script, *words).notes))


def problems(script: str, *words: str) -> list[Problem]:
    """The problems of a command."""
    with pytest.raises(RecipeError) as caught:
        translate(script, *words)
    return list(caught.value.problems)
