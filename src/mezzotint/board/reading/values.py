"""The effective recipe of a run: each setting with its value, whether it is the default, and what it means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.board.reading.tails import shown
from mezzotint.errors import RecipeError
from mezzotint.settings import reference
from mezzotint.settings.reading import yaml_rules
from mezzotint.settings.reading.paths import by_path


@dataclass(frozen=True, slots=True)
class SettingValue:
    """A setting of a run. origin: `default`, or where it was written as far as the run has noted it; help: as
    `mezzotint explain` says it."""

    path: str
    text: str
    origin: str
    help: str

    @property
    def is_default(self) -> bool:
        """Whether nobody has written it."""
        return self.origin == "default"


def effective(path: Path) -> list[SettingValue]:
    """The settings of a run's recipe.yaml, in their order; none where it cannot be read."""
    origins = _origins(path)
    values = []
    for name, value in flat(tree(path / "recipe.yaml")):
        setting = by_path().get(name)
        usual = setting is not None and setting.default == value
        origin = origins.get(name) or ("default" if usual else "recipe")
        values.append(SettingValue(shown(name), shown(text(value)), shown(origin), explained(name)))
    return values


def tree(file: Path) -> dict[str, Any]:
    """The mapping of a YAML file; empty where there is none that can be read."""
    try:
        return yaml_rules.load(outside.read_text(file, limit=yaml_rules.MAX_BYTES, within=file.parent), file.name).tree
    except (OSError, ValueError, RecipeError):
        return {}


def _origins(path: Path) -> dict[str, str]:
    """Where the values of a run were written, as its start noted it."""
    try:
        content = outside.read_json(path / "origin.json", within=path)
    except (OSError, ValueError):
        return {}
    return {str(n): str(o) for n, o in content.items()} if isinstance(content, dict) else {}


def flat(mapping: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of every leaf."""
    for name, value in mapping.items():
        path = f"{before}{name}"
        if isinstance(value, dict) and value and path not in by_path():
            yield from flat(value, f"{path}.")
        else:
            yield path, value


def text(value: Any) -> str:
    """A value as one would write it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


@cache
def explained(path: str) -> str:
    """What `mezzotint explain` says of a setting; "" for one that this version does not know."""
    try:
        return "\n".join(line.strip() for line in reference.explain(path).splitlines())
    except RecipeError:
        return ""


def differences(recipes: dict[str, dict[str, Any]]) -> list[tuple[str, list[str | None]]]:
    """Settings that are not the same in all recipes, each with its value in every one, None where it has none."""
    leaves = [dict(flat(recipe)) for recipe in recipes.values()]
    names = dict.fromkeys(name for one in leaves for name in one)
    rows = [(name, [shown(text(one[name])) if name in one else None for one in leaves]) for name in names]
    return [(shown(name), row) for name, row in rows if len(set(row)) > 1]
