"""The effective recipe of a run: each setting with its value, its origin and its help text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.board.reading.tails import make_printable
from mezzotint.errors import RecipeError
from mezzotint.settings import reference
from mezzotint.settings.reading import yaml_rules
from mezzotint.settings.reading.paths import by_path
from mezzotint.settings.reading.writing import flatten

_FAMILY = re.compile(r"^model:\n  family: ([a-z][a-z0-9-]*)(?: |$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A setting of a run. origin: `default`, or where it was set, if the run has recorded it; help: the text of
    `mezzotint explain`."""

    path: str
    text: str
    origin: str
    help: str

    @property
    def is_default(self) -> bool:
        """Whether the value is the default."""
        return self.origin == "default"


def read_effective(path: Path) -> list[SettingValue]:
    """The settings of a run's recipe.yaml, in their order; empty if it cannot be read."""
    origins = _origins(path)
    values = []
    for name, value in flatten(read_tree(path / "recipe.yaml")):
        setting = by_path().get(name)
        is_default = setting is not None and setting.default == value
        origin = origins.get(name) or ("default" if is_default else "recipe")
        values.append(
            SettingValue(make_printable(name), make_printable(to_text(value)), make_printable(origin), explain(name))
        )
    return values


def read_tree(file: Path) -> dict[str, Any]:
    """The mapping of a YAML file; empty if it cannot be read."""
    try:
        return yaml_rules.load(outside.read_text(file, limit=yaml_rules.MAX_BYTES, within=file.parent), file.name).tree
    except (OSError, ValueError, RecipeError):
        return {}


def _origins(path: Path) -> dict[str, str]:
    """Where the values of a run were set, as recorded at its start."""
    try:
        content = outside.read_json(path / "origin.json", within=path)
    except (OSError, ValueError):
        return {}
    return {str(n): str(o) for n, o in content.items()} if isinstance(content, dict) else {}


def to_text(value: Any) -> str:
    """A value as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


@cache
def explain(path: str) -> str:
    """The output of `mezzotint explain` for a setting; "" for one that this version does not have."""
    try:
        return "\n".join(line.strip() for line in reference.explain(path).splitlines())
    except RecipeError:
        return ""


@dataclass(frozen=True, slots=True)
class ComparedSettings:
    """Settings of several recipes by path. different: the value in every recipe, None where it is not set; equal: the
    value that all have."""

    different: list[tuple[str, list[str | None]]]
    equal: list[tuple[str, str]]


def compare(recipes: Mapping[str, dict[str, Any]]) -> ComparedSettings:
    """The settings of recipes, those that differ apart from those that are equal."""
    leaves = [dict(flatten(recipe)) for recipe in recipes.values()]
    names = dict.fromkeys(name for one in leaves for name in one)
    rows = [
        (make_printable(name), [make_printable(to_text(one[name])) if name in one else None for one in leaves])
        for name in names
    ]
    return ComparedSettings(
        [(name, row) for name, row in rows if len(set(row)) > 1],
        [(name, row[0]) for name, row in rows if len(set(row)) == 1 and row[0] is not None],
    )


def read_family(file: Path) -> str:
    """The model family that a recipe names; "" if it cannot be read. Most recipes of runs are as Mezzotint writes them,
    and the list of runs does not have to parse each as a whole."""
    try:
        text = outside.read_text(file, limit=yaml_rules.MAX_BYTES, within=file.parent)
    except (OSError, ValueError):
        return ""
    written = _FAMILY.search(text)
    model = {"family": written[1]} if written is not None else read_tree(file).get("model")
    family = model.get("family") if isinstance(model, dict) else None
    return make_printable(family) if isinstance(family, str) else ""
