"""Commands of the dialect `kohya` for tests of data and previews."""

from __future__ import annotations

from typing import Any

import pytest
from foreign_lines import ALONE, flat

from mezzotint.errors import Problem, RecipeError
from mezzotint.settings.reading.translation import Launched, Translation
from mezzotint.tasks.reading import foreign

BASE = ("--pretrained_model_name_or_path=sd15", "--output_dir=out")
LORA = ("--script=train_network", "--network_module=networks.lora", *BASE)


def translate(*words: str, launched: Launched = ALONE) -> Translation:
    """A command of train_network unless it has another script."""
    first = BASE if any(word.startswith("--script") for word in words) else LORA
    return foreign.find_dialect("kohya").translate([*first, *words], launched)


def settings(*words: str, launched: Launched = ALONE) -> dict[str, Any]:
    return flat(translate(*words, launched=launched).settings)


def notes(*words: str) -> str:
    return "\n".join(str(note) for note in translate(*words).notes)


def recipe(*words: str) -> Any:
    return foreign.read_command_line("kohya", [*LORA, *words], (), ALONE).recipe


def problems(*words: str) -> list[Problem]:
    with pytest.raises(RecipeError) as caught:
        translate(*words)
    return list(caught.value.problems)
