"""YAML files whose entries are `{target: dotted.path, params: {…}}`, read with an explicit table: only the last part of
a target is used, and nothing is ever imported. Unknown targets are refused by name and line, with the nearest known
one.

A key of the file is a flag of the draft, `yaml:` before its dotted name, for the positions in notes and origins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from mezzotint.compat.kit import setting_files
from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kit.reading import format_value
from mezzotint.errors import Problem, did_you_mean, find_closest
from mezzotint.settings.reading import yaml_rules
from mezzotint.settings.reading.yaml_rules import KeyPath

ParamKind = Literal["text", "whole", "number", "switch", "list", "object", "any"]
_KINDS: Mapping[type, ParamKind] = {
    str: "text", int: "whole", float: "number", bool: "switch", list: "list", dict: "object",
}  # fmt: skip
_NOUNS = {"whole": "an integer", "number": "a number", "text": "a text", "list": "a list", "object": "an object"}
_SWITCHES = {**dict.fromkeys(("yes", "on", "y"), True), **dict.fromkeys(("no", "off", "n"), False)}
_MISSING = object()

BESIDE: Mapping[str, frozenset[str]] = {
    "embedder": frozenset({"is_trainable", "ucg_rate", "input_key", "input_keys", "legacy_ucg_value"})
}
"""Keys that are allowed next to target and params, by role."""


@dataclass(frozen=True, slots=True)
class Param:
    """One key of `params`. default: the default of the foreign class. only: the supported values; others are refused,
    with the reason `about`. ignored: it has no effect in Mezzotint; `about` becomes a note if it is not `default`."""

    kind: ParamKind
    default: Any = None
    only: tuple[Any, ...] = ()
    ignored: bool = False
    about: str = ""


Params = Mapping[str, Param]


def params(**defaults: Any) -> dict[str, Param]:
    """Keys with their defaults, or the types of those without a default; `object` accepts any value."""
    is_type = {key: isinstance(default, type) for key, default in defaults.items()}
    return {
        key: Param(_KINDS.get(default if is_type[key] else type(default), "any"), None if is_type[key] else default)
        for key, default in defaults.items()
    }


def only(about: str, **defaults: Any) -> dict[str, Param]:
    """Keys that only support their defaults. about: the reason."""
    return {key: replace(one, only=(one.default,), about=about) for key, one in params(**defaults).items()}


def ignored(about: str, **defaults: Any) -> dict[str, Param]:
    """Keys without effect in Mezzotint. about: the reason."""
    return {key: replace(one, ignored=True, about=about) for key, one in params(**defaults).items()}


@dataclass(frozen=True, slots=True)
class Target:
    """One foreign class. role: its purpose. refused: the reason why it is not supported, "" if it is."""

    role: str
    params: Params = field(default_factory=lambda: MappingProxyType({}))
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """An object of the file. name: the last part of its target, "" for plain keys. values: its params, with defaults.
    written: the params in the file. key_path: of the object in the file; params_path: of its params."""

    config: Config
    name: str
    key_path: KeyPath
    params_path: KeyPath
    values: Mapping[str, Any]
    written: frozenset[str]

    def __getitem__(self, key: str) -> Any:
        return self.values[key]

    def flag(self, key: str = "") -> str:
        """The draft's flag of one of its params, or of its target."""
        return flag_of((*self.params_path, key) if key else (*self.key_path, "target"))

    def copy(self, path: str, key: str) -> None:
        """Sets a recipe path to the value of a param."""
        self.config.draft.set(path, self.values[key], self.flag(key))

    def refuse(self, key: str, message: str, remedy: str = "", code: str = "E1018") -> None:
        """Refuses one of its params, or its target for ""."""
        self.config.refuse((*self.params_path, key) if key else (*self.key_path, "target"), message, remedy, code)


def flag_of(key_path: KeyPath) -> str:
    """The draft's flag of a key of the file."""
    return "yaml:" + ".".join(str(part) for part in key_path)


class Config:
    """A YAML file and its draft, which collects the problems. Raises RecipeError as `yaml_rules.read_file` and
    `yaml_rules.load`."""

    def __init__(self, draft: Draft, name: str, path: Any, targets: Mapping[str, Target]) -> None:
        document = yaml_rules.load(yaml_rules.read_file(path, name), name)
        self.draft, self.file, self.document = draft, setting_files.file_name(name), document
        self.tree, self._targets = document.tree, targets
        for problem in document.problems:
            draft.problems.append(problem._replace(where=f"{problem.where} in {self.file}"))
        flags = [flag_of(key_path) for key_path in document.lines if key_path]
        draft.files = {**draft.files, **dict.fromkeys(flags, self.file)}
        draft.named = draft.named | frozenset(flags)

    def refuse(self, key_path: KeyPath, message: str, remedy: str = "", code: str = "E1018") -> None:
        """Adds a problem of a key path in the file, with its line."""
        where = f"{'.'.join(str(part) for part in key_path)} in {self.file}"
        self.draft.problems.append(Problem(where, message, remedy, code, self.document.line_near(key_path)))

    def at(self, key_path: KeyPath) -> Any:
        """The value at a key path, or None."""
        value: Any = self.tree
        for part in key_path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def require(self, key_path: KeyPath, role: str) -> Node | None:
        """As `node`, with a problem if there is no such object."""
        if self.at(key_path) is None:
            self.refuse(key_path, "is missing", "see the shipped YAML files", "E1017")
        return self.node(key_path, role)

    def section(self, key_path: KeyPath, params: Params) -> Node:
        """A plain mapping of keys, without a target."""
        tree = self.at(key_path)
        if tree is not None and not isinstance(tree, dict):
            self.refuse(key_path, f"must be a mapping, got {_format(tree)}", code="E1017")
            tree = None
        return self._with_values("", key_path, key_path, tree or {}, params)

    def node(self, key_path: KeyPath, role: str) -> Node | None:
        """The object at a key path, whose target must have a role; None if it is absent or invalid."""
        tree = self.at(key_path)
        if tree is None:
            return None
        if not isinstance(tree, dict) or not isinstance(tree.get("target"), str):
            self.refuse(key_path, "must be an object with `target:`", code="E1017")
            return None
        name = tree["target"].rpartition(".")[2]
        target = self._target(key_path, tree["target"], name, role)
        if target is None:
            return None
        entries = tree.get("params")
        if entries is not None and not isinstance(entries, dict):
            self.refuse((*key_path, "params"), f"must be a mapping, got {_format(entries)}", code="E1017")
            return None
        for key in sorted(tree.keys() - {"target", "params"} - BESIDE.get(role, frozenset())):
            self.refuse((*key_path, key), "is next to target and params, where it is not read", code="E1016")
        return self._with_values(name, key_path, (*key_path, "params"), entries or {}, target.params)

    def nodes(self, key_path: KeyPath, role: str) -> Iterator[Node]:
        """The objects of a list."""
        items = self.at(key_path)
        if items is not None and not isinstance(items, list):
            self.refuse(key_path, f"must be a list, got {_format(items)}", code="E1017")
            return
        nodes = (self.node((*key_path, index), role) for index in range(len(items or ())))
        yield from (node for node in nodes if node is not None)

    def _target(self, key_path: KeyPath, written: str, name: str, role: str) -> Target | None:
        target = self._targets.get(name)
        remedy, code = "", "E1080"
        if target is None:
            alike = [target_name for target_name, one in self._targets.items() if one.role == role and not one.refused]
            near = find_closest(name, alike, cutoff=0.0)
            message, remedy = f"{written} is not known", f"the nearest {role} is {near}" if near else ""
        elif target.refused:
            message, code = f"{name} {target.refused}", "E1081"
        elif target.role != role:
            message = f"{name} is a {target.role}; a {role} is needed"
        else:
            return target
        self.refuse((*key_path, "target"), message, remedy, code)
        return None

    def _with_values(
        self, name: str, key_path: KeyPath, params_path: KeyPath, entries: Mapping[str, Any], params: Params
    ) -> Node:
        values = {key: param.default for key, param in params.items()}
        self.draft.files = {**self.draft.files, **{flag_of((*params_path, key)): self.file for key in params}}
        written = set()
        for key, raw in entries.items():
            if key not in params:
                remedy = did_you_mean(str(key), params, f"known keys: {', '.join(params) or 'none'}")
                self.refuse((*params_path, key), "unknown key", remedy, "E1016")
                continue
            value = self._value((*params_path, key), params[key], raw)
            if value is not _MISSING:
                values[key] = value
                written.add(key)
        return Node(self, name, key_path, params_path, values, frozenset(written))

    def _value(self, key_path: KeyPath, param: Param, raw: Any) -> Any:
        if raw is None:
            return param.default
        value = self._switch(key_path, raw) if param.kind == "switch" else _of_kind(param.kind, raw)
        if value is _MISSING:
            expected = _NOUNS.get(param.kind, "True or False")
            self.refuse(key_path, f"must be {expected}, got {_format(raw)}", code="E1017")
        elif param.only and value not in param.only:
            allowed = " or ".join(_format(one) for one in param.only)
            self.refuse(key_path, f"is {_format(value)}; only {allowed} is supported: {param.about}", code="E1081")
        elif param.ignored and value != param.default:
            self.draft.note(flag_of(key_path), param.about)
        return value

    def _switch(self, key_path: KeyPath, raw: Any) -> Any:
        if isinstance(raw, str) and raw.lower() in _SWITCHES and raw in (raw.lower(), raw.upper(), raw.capitalize()):
            value = _SWITCHES[raw.lower()]
            self.draft.note(flag_of(key_path), f"{raw} is read as {value}; YAML 1.2 uses true and false")
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


def _format(value: Any) -> str:
    if isinstance(value, (list, dict)):
        text = str(value)
        return text if len(text) <= 60 else f"{text[:57]}…"
    return format_value(value) if isinstance(value, str) else str(value)


def as_list(value: Any, most: int = 100) -> list[Any]:
    """A value as a list, of at most `most` items; a single value is a list of one."""
    return list(value)[:most] if isinstance(value, (list, tuple)) else [value]
