"""A tree of settings as the YAML of a recipe; each line names the flag it comes from, or its reason."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mezzotint.settings.reading.paths import by_path
from mezzotint.settings.recipe import Recipe, plain_values

_ORDER = ("schema", "model", "data", "objective", "optim", "run", "sample")
_PLAIN = re.compile(r"[A-Za-z./~][A-Za-z0-9_./~+-]*( [A-Za-z0-9_./-]+)*")
_CONSTANTS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n", "~", ".inf", ".nan"))


def as_yaml(settings: Mapping[str, Any], origin: Mapping[str, str]) -> str:
    """The text of a recipe that `mezzotint train` reads: reading it gives `settings` exactly. origin: recipe path → its
    source, added as a comment at the end of the line."""
    ordered = {key: settings[key] for key in _ORDER if key in settings}
    assert ordered.keys() == settings.keys(), settings.keys() - ordered.keys()
    return "\n".join(_lines(ordered, origin, "")) + "\n"


def flatten(mapping: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of every leaf."""
    for name, value in mapping.items():
        path = f"{before}{name}"
        if isinstance(value, dict) and value and path not in by_path():
            yield from flatten(value, f"{path}.")
        else:
            yield path, value


def without_defaults(recipe: Recipe, given: Collection[str] = ()) -> dict[str, Any]:
    """The tree of a recipe's settings without defaults. given: paths whose values stay even so."""
    tree: dict[str, Any] = {"schema": 1}
    for path, value in flatten(plain_values(recipe)):
        setting = by_path().get(path)
        if path == "schema" or (setting is not None and setting.default == value and path not in given):
            continue
        section = tree
        *folders, name = path.split(".")
        for folder in folders:
            section = section.setdefault(folder, {})
        section[name] = value
    return tree


def _lines(tree: Mapping[str, Any], origin: Mapping[str, str], prefix: str) -> Iterator[str]:
    indent = "  " * prefix.count(".")
    for key, value in tree.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield f"{indent}{key}:"
            yield from _lines(value, origin, f"{path}.")
        else:
            comment = f"  # {_one_line(origin[path])}" if path in origin else ""
            yield f"{indent}{key}: {_value(value)}{comment}"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _value(value: Any) -> str:
    """A scalar or a list of them, on one line. JSON is YAML; unambiguous texts are written without quotes."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _CONSTANTS:
        return value
    text = json.dumps(value, ensure_ascii=False)
    # line breaks and control characters beyond ASCII, which JSON leaves unescaped and YAML folds or refuses
    return "".join(mark if mark.isprintable() else f"\\U{ord(mark):08x}" for mark in text)
