"""Command lines of sd-scripts under test."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_lines import flat

from mezzotint.compat.kohya._scripts import SCRIPTS
from mezzotint.compat.kohya.dialect import DIALECT
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched, Translation
from mezzotint.tasks.reading import foreign

_MODULES = {"sd": "networks.lora", "sdxl": "networks.lora", "sd3": "networks.lora_sd3", "flux": "networks.lora_flux"}
_METHODS = {
    "adapter": (), "weights": (), "embeddings": ("--token_string=<fox>", "--init_word=fox"),
}  # fmt: skip


def line(script: str, *words: str) -> list[str]:
    """A short valid command of a script, with more options."""
    one = SCRIPTS[script]
    module = (f"--network_module={_MODULES[one.family]}",) if one.method == "adapter" else ()
    data = "--in_json=meta.json" if script == "fine_tune" else "--seed=1"
    return [f"{script}.py", "--pretrained_model_name_or_path=base", "--train_data_dir=images", "--resolution=512",
            "--output_dir=out", data, *module, *_METHODS[one.method], *words]  # fmt: skip


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
    return foreign.read_command_line("kohya", line(script, *words), (), Launched()).recipe


def notes(script: str, *words: str) -> str:
    """All notes of a command as one text."""
    return "\n".join(map(str, translate(script, *words).notes))


def refusal(script: str, *words: str) -> list[tuple[str, str, str]]:
    """(option, code, message) of each problem of a command."""
    with pytest.raises(RecipeError) as caught:
        translate(script, *words)
    return [(problem.where, problem.code, problem.message) for problem in caught.value.problems]
