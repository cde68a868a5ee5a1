"""Job files for tests: the shortest one, and changes of it."""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from foreign_lines import ALONE, GONE, flat

from mezzotint.compat.ai_toolkit.dialect import DIALECT
from mezzotint.errors import RecipeError
from mezzotint.settings.reading.translation import Launched, Translation
from mezzotint.settings.reference import error_codes
from mezzotint.tasks.reading import foreign

FIRST: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "first.yaml").read_text("utf-8"))
FLUX = {"model.arch": "flux", "train.noise_scheduler": "flowmatch", "sample.sampler": "flowmatch"}


def job(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The shortest job with changes: keys of the training with dots, numbers for entries of lists; GONE removes."""
    tree = copy.deepcopy(FIRST)
    for path, value in (changes or {}).items():
        current: Any = tree["config"]["process"][0]
        *sections, last = path.split(".")
        for section, following in pairwise([*sections, last]):
            if isinstance(current, list):
                current += [{}] * (int(section) + 1 - len(current))
                current = current[int(section)]
            else:
                current = current.setdefault(section, [] if following.isdigit() else {})
        if value == GONE:
            del current[last]
        elif isinstance(current, list):
            current.append(value)
        else:
            current[last] = value
    return tree


def write(tree: Any, name: str = "job.yaml") -> str:
    Path(name).write_text(tree if isinstance(tree, str) else yaml.safe_dump(tree, sort_keys=False), "utf-8")
    return name


def translate(changes: dict[str, Any] | None = None, *words: str, launched: Launched = ALONE) -> Translation:
    return DIALECT.translate(["run.py", write(job(changes)), *words], launched)


def settings(changes: dict[str, Any] | None = None, *words: str) -> dict[str, Any]:
    """Settings of a job, also read as a recipe."""
    translated = translate(changes, *words)
    foreign.read_command_line("ai-toolkit", [write(job(changes)), *words], (), ALONE)
    tree: dict[str, Any] = flat(translated.settings)
    return tree


def changed(changes: dict[str, Any], beside: dict[str, Any] | None = None) -> dict[str, Any]:
    """The settings that differ from those without the changes; GONE for those left out."""
    before, after = flat(translate(beside).settings), settings({**(beside or {}), **changes})
    gone = dict.fromkeys(before.keys() - after.keys(), GONE)
    return {path: value for path, value in after.items() if before.get(path, "absent") != value} | gone


def notes(changes: dict[str, Any], beside: dict[str, Any] | None = None) -> list[str]:
    """Notes that are not there without the changes."""
    before = set(map(str, translate(beside).notes))
    return [str(note) for note in translate({**(beside or {}), **changes}).notes if str(note) not in before]


def problems(tree: Any, name: str = "job.yaml") -> list[tuple[str, str, str, int | None]]:
    """(where, code, message and remedy, line) of each problem of a file."""
    with pytest.raises(RecipeError) as caught:
        foreign.read_command_line("ai-toolkit", ["run.py", write(tree, name)], (), ALONE)
    assert {problem.code for problem in caught.value.problems} <= error_codes().keys()
    return [(p.where, p.code, f"{p.message}; {p.remedy}".rstrip("; "), p.line) for p in caught.value.problems]
