"""YAML files whose entries are `{target: dotted.path, params: {…}}`, read by an explicit table: only the last part of a
target counts, and nothing is ever imported. What is not in the table is refused by name and line, with the nearest.

A key of the file is a flag of the draft, `yaml:` before its dotted name, so that notes and origins say where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from mezzotint.compat.kit import setting_files
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.reading import format_value
from mezzotint.errors import Problem, did_you_mean, most_alike
from mezzotint.settings.reading import yaml_rules
from mezzotint.settings.reading.yaml_rules import Place

ParamKind = Literal["text", "whole", "number", "switch", "list", "object", "any"]
_KINDS: Mapping[type, ParamKind] = {
    str: "text", int: "whole", float: "number", bool: "switch", list: "list", dict: "object",
}  # fmt: skip
_WORDS = {"whole": "a whole number", "number": "a number", "text": "a text", "list": "a list", "object": "an object"}
_SWITCHES = {**dict.fromkeys(("yes", "on", "y"), True), **dict.fromkeys(("no", "off", "n"), False)}
_MISSING = object()

BESIDE: Mapping[str, frozenset[str]] = {
    "embedder": frozenset({"is_trainable", "ucg_rate", "input_key", "input_keys", "legacy_ucg_value"})
}
"""What may stand beside target and params, by role."""


@dataclass(frozen=True, slots=True)
class Param:
    """One key of `params`. default: what the foreign class takes without it. only: the values that can be done; others
    are refused, and `about` tells why. idle: it changes nothing here; `about` tells why when it is not `default`."""

    kind: ParamKind
    default: Any = None
    only: tuple[Any, ...] = ()
    idle: bool = False
    about: str = ""


Params = Mapping[str, Param]


def params(**defaults: Any) -> dict[str, Param]:
    """Keys with their defaults, or the types of those that have none; `object` is any value."""
    is_type = {key: isinstance(default, type) for key, default in defaults.items()}
    return {
        key: Param(_KINDS.get(default if is_type[key] else type(default), "any"), None if is_type[key] else default)
        for key, default in defaults.items()
    }


def only(about: str, **defaults: Any) -> dict[str, Param]:
    """Keys that cannot be anything but their defaults. about: why."""
    return {key: replace(one, only=(one.default,), about=about) for key, one in params(**defaults).items()}


def ignored(about: str, **defaults: Any) -> dict[str, Param]:
    """Keys that change nothing here. about: why."""
    return {key: replace(one, idle=True, about=about) for key, one in params(**defaults).items()}


@dataclass(frozen=True, slots=True)
class Target:
    """One foreign class. role: what it is for, in words. refused: why it cannot be done, "" for one that can."""

    role: str
    params: Params = field(default_factory=lambda: MappingProxyType({}))
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """An object of the file. name: the last part of its target, "" for plain keys. values: its params, defaults filled
    in. written: those that stand in the file. place: where it lies, inside: where its params do."""

    config: Config
    name: str
    place: Place
    inside: Place
    values: Mapping[str, Any]
    written: frozenset[str]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def flag(self, key: str = "") -> str:
        """The draft's flag of one of its params, or of its target."""
        return flag_of((*self.inside, key) if key else (*self.place, "target"))

    def lay(self, path: str, key: str) -> None:
        """Puts a param into the recipe as it is."""
        self.config.draft.set(path, self.values[key], self.flag(key))

    def refuse(self, key: str, what: str, remedy: str = "", code: str = "E1018") -> None:
        """Refuses one of its params, or with "" its target."""
        self.config.refuse((*self.inside, key) if key else (*self.place, "target"), what, remedy, code)


def flag_of(place: Place) -> str:
    """The draft's flag of a key of the file."""
    return "yaml:" + ".".join(str(part) for part in place)


class Config:
    """A file while it is read. What is wrong goes into the draft's problems. Raises RecipeError as
    `yaml_rules.read_file` and `yaml_rules.load`."""

    def __init__(self, draft: Draft, name: str, path: Any, targets: Mapping[str, Target]) -> None:
        document = yaml_rules.load(yaml_rules.read_file(path, name), name)
        self.draft, self.file, self.document = draft, setting_files.file_name(name), document
        self.tree, self._targets = document.tree, targets
        for problem in document.problems:
            draft.problems.append(problem._replace(where=f"{problem.where} in {self.file}"))
        flags = [flag_of(place) for place in document.lines if place]
        draft.files = {**draft.files, **dict.fromkeys(flags, self.file)}
        draft.named = draft.named | frozenset(flags)

    def refuse(self, place: Place, what: str, remedy: str = "", code: str = "E1018") -> None:
        """Something that cannot be done, with the line it stands on."""
        where = f"{'.'.join(str(part) for part in place)} in {self.file}"
        self.draft.problems.append(Problem(where, what, remedy, code, self.document.line_near(place)))

    def at(self, place: Place) -> Any:
        """What lies at a place, None when nothing does."""
        here: Any = self.tree
        for part in place:
            try:
                here = here[part]
            except (KeyError, IndexError, TypeError):
                return None
        return here

    def require(self, place: Place, role: str) -> Node | None:
        """`node`, and a problem where there is none."""
        if self.at(place) is None:
            self.refuse(place, "is missing", "the YAML files that ship have it", "E1017")
        return self.node(place, role)

    def section(self, place: Place, params: Params) -> Node:
        """A plain mapping of keys, without a target."""
        tree = self.at(place)
        if tree is not None and not isinstance(tree, dict):
            self.refuse(place, f"must hold keys, got {_word(tree)}", code="E1017")
            tree = None
        return self._with_values("", place, place, tree or {}, params)

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
        for key in sorted(tree.keys() - {"target", "params"} - BESIDE.get(role, frozenset())):
            self.refuse((*place, key), "stands beside target and params, where nothing is read", code="E1016")
        return self._with_values(name, place, (*place, "params"), entries or {}, target.params)

    def nodes(self, place: Place, role: str) -> Iterator[Node]:
        """The objects of a list."""
        items = self.at(place)
        if items is not None and not isinstance(items, list):
            self.refuse(place, f"must be a list, got {_word(items)}", code="E1017")
            return
        nodes = (self.node((*place, index), role) for index in range(len(items or ())))
        yield from (node for node in nodes if node is not None)

    def _target(self, place: Place, written: str, name: str, role: str) -> Target | None:
        target = self._targets.get(name)
        remedy, code = "", "E1080"
        if target is None:
            alike = [known for known, one in self._targets.items() if one.role == role and not one.refused]
            near = most_alike(name, alike, cutoff=0.0)
            what, remedy = f"{written} is not known", f"the nearest {role} is {near}" if near else ""
        elif target.refused:
            what, code = f"{name} {target.refused}", "E1081"
        elif target.role != role:
            what = f"{name} is a {target.role}, and a {role} belongs here"
        else:
            return target
        self.refuse((*place, "target"), what, remedy, code)
        return None

    def _with_values(self, name: str, place: Place, inside: Place, entries: Mapping[str, Any], params: Params) -> Node:
        values = {key: param.default for key, param in params.items()}
        self.draft.files = {**self.draft.files, **{flag_of((*inside, key)): self.file for key in params}}
        written = set()
        for key, raw in entries.items():
            if key not in params:
                remedy = did_you_mean(str(key), params, f"known are {', '.join(params) or 'none'}")
                self.refuse((*inside, key), "unknown key", remedy, "E1016")
                continue
            value = self._value((*inside, key), params[key], raw)
            if value is not _MISSING:
                values[key] = value
                written.add(key)
        return Node(self, name, place, inside, values, frozenset(written))

    def _value(self, place: Place, param: Param, raw: Any) -> Any:
        if raw is None:
            return param.default
        value = self._switch(place, raw) if param.kind == "switch" else _of_kind(param.kind, raw)
        if value is _MISSING:
            words = _WORDS.get(param.kind, "True or False")
            self.refuse(place, f"must be {words}, got {_word(raw)}", code="E1017")
        elif param.only and value not in param.only:
            allowed = " or ".join(_word(one) for one in param.only)
            self.refuse(place, f"is {_word(value)}, and only {allowed} can be done: {param.about}", code="E1081")
        elif param.idle and value != param.default:
            self.draft.note(flag_of(place), param.about)
        return value

    def _switch(self, place: Place, raw: Any) -> Any:
        if isinstance(raw, str) and raw.lower() in _SWITCHES and raw in (raw.lower(), raw.upper(), raw.capitalize()):
            value = _SWITCHES[raw.lower()]
            self.draft.note(flag_of(place), f"{raw} is read as {value}; YAML 1.2 has true and false")
            return value
        return bool(raw) if isinstance(raw, int) and raw in (0, 1) else _MISSING


def _of_kind(kind: ParamKind, raw: Any) -> Any:
    is_number = isinstance(raw, (int, float)) and not isinstance(raw, bool)
    match kind:
        case "whole":
            return int(raw) if is_number and raw % 1 == 0 else _MISSING
        case "number":
            return float(raw) if is_number else _MISSING
        case "any":
            return raw
        case _:
            return raw if isinstance(raw, {"text": str, "list": list, "object": dict}[kind]) else _MISSING


def _word(value: Any) -> str:
    if isinstance(value, (list, dict)):
        text = str(value)
        return text if len(text) <= 60 else f"{text[:57]}…"
    return format_value(value) if isinstance(value, str) else str(value)


def lists(value: Any, most: int = 100) -> list[Any]:
    """A list as it is, one value as a list of one; of at most so many."""
    return list(value)[:most] if isinstance(value, (list, tuple)) else [value]
