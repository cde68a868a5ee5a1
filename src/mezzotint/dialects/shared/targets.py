"""YAML files whose entries are `{target: dotted.path, params: {…}}`, read by an explicit table: only the last part of a
target counts, and nothing is ever imported. What is not in the table is refused by name and line, with the nearest.

A key of the file is a flag of the draft, `yaml:` before its dotted name, so that notes and origins say where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from mezzotint.dialects.base import Draft
from mezzotint.dialects.shared import setting_files
from mezzotint.dialects.shared.reading import shown
from mezzotint.errors import Problem, RecipeError, did_you_mean, most_alike
from mezzotint.recipe.reading import yaml_rules
from mezzotint.recipe.reading.yaml_rules import Place

Kind = Literal["text", "whole", "number", "switch", "list", "object", "any"]
_YES = frozenset(("yes", "Yes", "YES", "on", "On", "ON", "y", "Y"))
_NO = frozenset(("no", "No", "NO", "off", "Off", "OFF", "n", "N"))
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Param:
    """One key of `params`. default: what the foreign class takes without it. only: the values that can be done; others
    are refused, and `about` tells why. idle: it changes nothing here; `about` tells why when it is not `default`."""

    kind: Kind
    default: Any = None
    only: tuple[Any, ...] = ()
    idle: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class Target:
    """One foreign class. role: what it is for, in words. refused: why it cannot be done, "" for one that can."""

    role: str
    params: Mapping[str, Param] = field(default_factory=lambda: MappingProxyType({}))
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """An object of the file. name: the last part of its target. values: its params, defaults filled in. written: those
    that stand in the file. place: where it lies."""

    name: str
    place: Place
    values: Mapping[str, Any]
    written: frozenset[str]

    def flag(self, key: str = "") -> str:
        """The draft's flag of one of its params, or of its target."""
        return flag_of((*self.place, "params", key) if key else (*self.place, "target"))


def flag_of(place: Place) -> str:
    """The draft's flag of a key of the file."""
    return "yaml:" + ".".join(str(part) for part in place)


class Config:
    """A file while it is read. What is wrong goes into the draft's problems."""

    def __init__(self, draft: Draft, name: str, text: str, targets: Mapping[str, Target]) -> None:
        document = yaml_rules.load(text, name)
        self.draft, self.name, self.file = draft, name, setting_files.short(name)
        self.tree, self.lines, self._targets = document.tree, document.lines, targets
        for problem in document.problems:
            draft.problems.append(replace(problem, where=f"{problem.where} in {self.file}"))
        flags = [flag_of(place) for place in document.lines if place]
        draft.files = {**draft.files, **dict.fromkeys(flags, self.file)}
        draft.named = draft.named | frozenset(flags)

    def refuse(self, place: Place, what: str, remedy: str = "", code: str = "E1018") -> None:
        """Something that cannot be done, with the line it stands on."""
        where = f"{'.'.join(str(part) for part in place)} in {self.file}"
        ends = (place[:end] for end in range(len(place), 0, -1))
        line = next((self.lines[end] for end in ends if end in self.lines), None)
        self.draft.problems.append(Problem(where, what, remedy, code, line))

    def at(self, place: Place) -> Any:
        """What lies at a place, None when nothing does."""
        here: Any = self.tree
        for part in place:
            try:
                here = here[part]
            except (KeyError, IndexError, TypeError):
                return None
        return here

    def section(self, place: Place, params: Mapping[str, Param]) -> Node:
        """A plain mapping of keys, without a target."""
        tree = self.at(place)
        if tree is not None and not isinstance(tree, dict):
            self.refuse(place, f"must hold keys, got {_word(tree)}", code="E1017")
            tree = None
        values, written = self._values(place, tree or {}, params)
        return Node("", place, values, written)

    def node(self, place: Place, role: str) -> Node | None:
        """The object at a place, whose target has a role; None when there is none or it is wrong."""
        tree = self.at(place)
        if tree is None:
            return None
        if not isinstance(tree, dict) or not isinstance(tree.get("target"), str):
            self.refuse(place, "must be an object with `target:`", code="E1017")
            return None
        name = tree["target"].rpartition(".")[2]
        target = self._target(place, tree["target"], name, role)
        if target is None:
            return None
        entries = tree.get("params")
        if entries is not None and not isinstance(entries, dict):
            self.refuse((*place, "params"), f"must hold keys, got {_word(entries)}", code="E1017")
            return None
        beside = sorted(tree.keys() - {"target", "params"} - BESIDE.get(role, frozenset()))
        for key in beside:
            self.refuse((*place, key), "stands beside target and params, where nothing is read", code="E1016")
        values, written = self._values((*place, "params"), entries or {}, target.params)
        return Node(name, place, values, written)

    def nodes(self, place: Place, role: str) -> Iterator[Node]:
        """The objects of a list."""
        items = self.at(place)
        if items is None:
            return
        if not isinstance(items, list):
            self.refuse(place, f"must be a list, got {_word(items)}", code="E1017")
            return
        for index in range(len(items)):
            node = self.node((*place, index), role)
            if node is not None:
                yield node

    def _target(self, place: Place, written: str, name: str, role: str) -> Target | None:
        target = self._targets.get(name)
        if target is None:
            alike = [known for known, one in self._targets.items() if one.role == role and not one.refused]
            near = most_alike(name, alike, cutoff=0.0)
            remedy = f"the nearest {role} is {near}" if near else ""
            self.refuse((*place, "target"), f"{written} is not known", remedy, "E1080")
            return None
        if target.refused:
            self.refuse((*place, "target"), f"{name} {target.refused}", code="E1081")
            return None
        if target.role != role:
            self.refuse((*place, "target"), f"{name} is a {target.role}, and a {role} belongs here", code="E1080")
            return None
        return target

    def _values(
        self, place: Place, entries: Mapping[str, Any], params: Mapping[str, Param]
    ) -> tuple[dict[str, Any], frozenset[str]]:
        values = {key: param.default for key, param in params.items()}
        self.draft.files = {**self.draft.files, **{flag_of((*place, key)): self.file for key in params}}
        written = set()
        for key, raw in entries.items():
            param = params.get(key)
            if param is None:
                remedy = did_you_mean(str(key), params, f"known are {', '.join(params) or 'none'}")
                self.refuse((*place, key), "unknown key", remedy, "E1016")
                continue
            value = self._value((*place, key), param, raw)
            if value is not _MISSING:
                values[key] = value
                written.add(key)
        return values, frozenset(written)

    def _value(self, place: Place, param: Param, raw: Any) -> Any:
        if raw is None:
            return param.default
        value = self._of_kind(place, param.kind, raw)
        if value is _MISSING:
            return value
        if param.only and value not in param.only:
            allowed = " or ".join(_word(one) for one in param.only)
            self.refuse(place, f"is {_word(value)}, and only {allowed} can be done: {param.about}", code="E1081")
        elif param.idle and value != param.default:
            self.draft.note(flag_of(place), param.about)
        return value

    def _of_kind(self, place: Place, kind: Kind, raw: Any) -> Any:
        match kind:
            case "any":
                return raw
            case "switch":
                return self._switch(place, raw)
            case "whole" if isinstance(raw, int) and not isinstance(raw, bool):
                return raw
            case "whole" if isinstance(raw, float) and raw.is_integer():
                return int(raw)
            case "number" if isinstance(raw, (int, float)) and not isinstance(raw, bool):
                return float(raw)
            case "text" if isinstance(raw, str):
                return raw
            case "list" if isinstance(raw, list):
                return raw
            case "object" if isinstance(raw, dict):
                return raw
        words = {"whole": "a whole number", "number": "a number", "text": "a text", "list": "a list"}
        self.refuse(place, f"must be {words.get(kind, 'an object')}, got {_word(raw)}", code="E1017")
        return _MISSING

    def _switch(self, place: Place, raw: Any) -> Any:
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw in _YES | _NO:
            value = raw in _YES
            self.draft.note(flag_of(place), f"{raw} is read as {value}; YAML 1.2 has true and false")
            return value
        if isinstance(raw, int) and raw in (0, 1):
            return bool(raw)
        self.refuse(place, f"must be True or False, got {_word(raw)}", code="E1017")
        return _MISSING


BESIDE: Mapping[str, frozenset[str]] = MappingProxyType(
    {"embedder": frozenset({"is_trainable", "ucg_rate", "input_key", "input_keys", "legacy_ucg_value"})}
)
"""What may stand beside target and params, by role."""


def _word(value: Any) -> str:
    if isinstance(value, (list, dict)):
        text = str(value)
        return text if len(text) <= 60 else f"{text[:57]}…"
    return shown(value) if isinstance(value, str) else str(value)


def lists(value: Any, most: int = 100) -> Sequence[Any]:
    """A list as it is, one value as a list of one; of at most so many."""
    return list(value)[:most] if isinstance(value, (list, tuple)) else [value]


def read_text(path: Any, name: str) -> str:
    """The text of a file. Raises RecipeError as `yaml_rules.read_file`."""
    return yaml_rules.read_file(path, name)


__all__ = ["BESIDE", "Config", "Node", "Param", "RecipeError", "Target", "flag_of", "lists", "read_text"]
