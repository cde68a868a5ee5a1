"""`key=value` overrides from the command line, applied to the file's settings.

A path may name a setting, a place in one (`sample.prompts.0`, `optim.part_lr.text_encoder`) or a section, which then
takes the given keys and keeps the others. `key+=value` appends to a list. If a text is expected, the value is taken as
typed.
"""

from __future__ import annotations

import copy
import os.path
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

from mezzotint.errors import Problem, RecipeError
from mezzotint.settings.reading import yaml_rules
from mezzotint.settings.reading.nearest import advice
from mezzotint.settings.reading.paths import Setting, by_path, owner, sections, sections_in


@dataclass(frozen=True, slots=True)
class Applied:
    """tree: the settings of file and command line together. paths: the paths that the command line set."""

    tree: dict[str, Any]
    paths: frozenset[str]
    problems: tuple[Problem, ...]


class _Refused(Exception):
    def __init__(self, where: str, message: str, remedy: str = "", code: str = "E1008") -> None:
        super().__init__(message)
        self.problem = Problem(where, message, remedy, code)


def apply(tree: dict[str, Any], overrides: Sequence[str]) -> Applied:
    """Applies overrides to a copy of a tree; the last one wins.

    Problems: E1008 for an override that is not `key=value` or does not fit a list, E1001 for an unknown path,
    E1004–E1006 for a value that the YAML rules refuse.
    """
    result = copy.deepcopy(tree)
    paths: set[str] = set()
    problems: list[Problem] = []
    for text in overrides:
        try:
            paths.update(_apply_one(result, text))
        except _Refused as refused:
            problems.append(refused.problem)
        except RecipeError as error:
            problems.extend(error.problems)
    return Applied(result, frozenset(paths), tuple(problems))


def _apply_one(tree: dict[str, Any], text: str) -> list[str]:
    parts = re.fullmatch(r"\s*([^\s=+]+?)\s*(\+?)=(.*)", text, re.DOTALL)
    if not parts:
        if os.path.isdir(text):
            raise _Refused(text[:60], "is a folder, not key=value", f"write data.path={text[:60]}")
        example = text if text in by_path() else "optim.lr"
        raise _Refused(text[:60], "is not key=value", f"write it like {example}=VALUE, without spaces")
    path, append, raw = parts[1], bool(parts[2]), parts[3]
    if path in sections():
        return _merge(tree, path, yaml_rules.value(raw, path), append)
    owned = owner(path)
    if owned is None:
        raise _Refused(path, "unknown key", advice(path), "E1001")
    setting, rest = owned
    value = _value_for(setting, rest, raw, path, append)
    if not rest and not append:
        _set(tree, path, value)
        return [path]
    current = _effective(tree, setting)
    if len(rest) > 1 and setting.shape.is_map and sections_in(get_args(setting.shape.base)[1]):
        current.setdefault(rest[0], {})  # `part_optimizer.text_encoder.kind` starts an entry
    if append:
        inner = _descend(current, rest, path)
        if not isinstance(inner, list):
            raise _Refused(path, "is not a list, so += cannot append to it", f"write {path}=VALUE")
        inner.extend(value if isinstance(value, list) and not _is_entry(setting, value) else [value])
    else:
        _assign(_descend(current, rest[:-1], path), rest[-1], value, path)
    _set(tree, setting.path, current)
    return [setting.path, path]


def _merge(tree: dict[str, Any], path: str, value: Any, append: bool) -> list[str]:
    if append or not isinstance(value, dict):
        example = next(p for p in by_path() if p.startswith(path + "."))
        raise _Refused(path, "is a group of settings", f"write {example}=VALUE, or {path}={{key: value, …}}", "E1002")
    paths = []
    for key, inner in value.items():
        inside = f"{path}.{key}"
        if inside in sections() and isinstance(inner, dict):
            paths += _merge(tree, inside, inner, append=False)
        else:
            _set(tree, inside, inner)
            paths.append(inside)
    return paths


def _value_for(setting: Setting, rest: tuple[str, ...], raw: str, path: str, append: bool) -> Any:
    """The value as typed if a text is expected, otherwise parsed by the YAML rules."""
    shape = setting.shape
    for word in rest:
        if shape.is_list or shape.is_map:
            shape = shape.item(int(word) if word.isdigit() else 0)
    while shape.is_list and (append or shape.one_for_many):
        shape = shape.item(0)
    if shape.is_text and raw.strip().startswith("{"):
        return raw.strip()  # `{name}_{step}`: a text is never a map
    value = yaml_rules.value(raw, path)
    plain = not raw.strip().startswith(("[", '"', "'"))
    if not (shape.is_text and plain) or isinstance(value, str):
        return value
    if value is None and raw.strip():
        return None
    return raw.strip()


def _effective(tree: dict[str, Any], setting: Setting) -> Any:
    """The value of a setting before the override: from the tree, otherwise its default; a list if one value may be
    written for a list."""
    node: Any = tree
    for key in setting.path.split("."):
        node = node.get(key, _ABSENT) if isinstance(node, dict) else _ABSENT
    current = setting.default if node is _ABSENT else node
    if setting.shape.one_for_many and not isinstance(current, list):
        current = [current]
    if current is None:
        current = {} if setting.shape.is_map else []
    return copy.deepcopy(current)


_ABSENT = object()


def _is_entry(setting: Setting, value: list[Any]) -> bool:
    """Whether a list is one entry of a list of lists: `points+=[500, 0.1]` appends one entry, `names+=[a, b]` two."""
    return setting.shape.is_list and setting.shape.item(0).is_list and not (value and isinstance(value[0], list))


def _descend(value: Any, keys: Sequence[str], path: str) -> Any:
    for key in keys:
        if isinstance(value, list):
            value = value[_index(key, value, path)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            raise _Refused(path, f"has no entry {key!r}", "see `mezzotint explain` for its entries")
    return value


def _assign(value: Any, key: str, new: Any, path: str) -> None:
    if isinstance(value, list):
        value[_index(key, value, path)] = new
    elif isinstance(value, dict):
        value[key] = new
    else:
        raise _Refused(path, f"has a single value at {key!r}, without entries", advice(path), "E1001")


def _index(key: str, value: list[Any], path: str) -> int:
    if not key.isdigit():
        raise _Refused(path, f"{key!r} is not the number of a list entry", "entries count from 0")
    if int(key) >= len(value):
        entries = f"{len(value)} entr{'y' if len(value) == 1 else 'ies'}"
        setting = path.rpartition(".")[0]
        raise _Refused(path, f"the list has {entries}, counted from 0", f"to append, write {setting}+=VALUE")
    return int(key)


def _set(tree: dict[str, Any], path: str, value: Any) -> None:
    """Sets a dotted path. If the file has something other than a section on the way, nothing is changed: the file's own
    problem is reported."""
    *sections_above, last = path.split(".")
    node: Any = tree
    for key in sections_above:
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            return
    node[last] = value
