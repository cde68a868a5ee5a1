"""JSON settings files that a foreign command names, parsed as strictly as the command: an unknown key is an error that
names the nearest one, and values must have the type of their key. Null and empty text mean the default.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mezzotint import outside
from mezzotint.compat.kit import reading
from mezzotint.compat.kit.reading import Parsed, Spec, Value
from mezzotint.errors import Problem, did_you_mean, find_closest

_LIMIT = 4_000_000
"""Largest size of a file, in bytes: about a thousand times a usual one."""


def file_name(name: str) -> str:
    """The name of a file in messages: the last part of its path."""
    return re.split(r"[/\\]", name)[-1]


def read(name: str, flag: str, specs: Mapping[str, Spec]) -> Parsed:
    """The values of a file by key, with dots for nested keys. flag: the name in messages of the flag that names the
    file. Does not raise: `problems` has E1016 for unknown keys, E1017 for invalid values and unreadable files."""
    parsed = Parsed()
    tree, problem = _load(name)
    if problem:
        parsed.problems.append(Problem(flag, problem, "", "E1017"))
        return parsed
    file = file_name(name)
    for key, raw in _entries(tree, specs, ""):
        where = f"{key} in {file}"
        spec = specs.get(key)
        if spec is None:
            parsed.problems.append(Problem(where, "unknown key", _suggest_key(key, specs), "E1016"))
            continue
        value, message = _value(spec, raw)
        if message:
            parsed.problems.append(Problem(where, message, "", "E1017"))
        else:
            parsed.values[key] = value
    return parsed


def _load(name: str) -> tuple[dict[str, Any], str]:
    """(object of the file, "") or ({}, problem)."""
    path = Path(name).expanduser()
    twice: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            keys = [key for key, _ in pairs]
            twice.extend(key for key in entries if keys.count(key) > 1)
        return entries

    try:
        tree = outside.parse_json(outside.read_text(path, limit=_LIMIT, encoding="utf-8-sig"), pairs=once)
    except outside.NotRegularFile as error:
        return {}, f"{name} is not a settings file: {error.strerror}"
    except OSError as error:
        return {}, f"{name} cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        return {}, f"{name} cannot be read: it is not UTF-8"
    except json.JSONDecodeError as error:
        hint = "; write a backslash twice" if "escape" in error.msg else ""
        return {}, f"{name} line {error.lineno} is not JSON ({error.msg}){hint}"
    except ValueError:
        return {}, f"{name} is not readable JSON"
    if twice:
        return {}, f"{name} has {', '.join(dict.fromkeys(twice))} more than once; keep one"
    if not isinstance(tree, dict):
        return {}, f'{name} is not a JSON object; write {{"key": value, …}}'
    return tree, ""


def _entries(tree: Mapping[str, Any], specs: Mapping[str, Spec], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yields keys with their values; keys of a known level are nested."""
    for key, raw in tree.items():
        name = f"{prefix}{key}"
        is_level = any(flag.startswith(f"{name}.") for flag in specs)
        if is_level and isinstance(raw, dict):
            yield from _entries(raw, specs, f"{name}.")
        elif not (is_level and raw is None):
            yield name, raw


def _suggest_key(key: str, specs: Mapping[str, Spec]) -> str:
    """A remedy for an unknown key: the nearest key of the same level, or of the whole file."""
    if any(flag.startswith(f"{key}.") for flag in specs):
        return 'write { "key": value }'
    home, _, last = key.rpartition(".")
    siblings = {flag.rpartition(".")[2]: flag for flag in specs if flag.rpartition(".")[0] == home}
    inside = f"{home}." if home else ""
    levels = {flag.removeprefix(inside).partition(".")[0] for flag in specs if flag.startswith(inside)} - set(siblings)
    siblings |= {level: f"{inside}{level}" for level in levels}
    near = find_closest(last, siblings, cutoff=0.7)
    if near is not None:
        return f"did you mean {siblings[near]}?"
    return did_you_mean(key, specs, "the trainer has no such key", cutoff=0.8)


def _value(spec: Spec, raw: Any) -> tuple[Value, str]:
    """(value, "") or (None, problem)."""
    if raw is None or raw == "":
        return None, ""
    if spec.from_json is not None:
        try:
            return spec.from_json(raw), ""
        except ValueError as error:
            return None, str(error)
    if isinstance(raw, dict) or (isinstance(raw, list) and spec.form not in ("texts", "numbers")):
        return None, f"must be one value, got {'an object' if isinstance(raw, dict) else 'a list'}"
    tokens = [_to_token(one, spec) for one in (raw if isinstance(raw, list) else [raw])]
    if not tokens:
        return None, ""
    return reading.value_of(spec, tokens)


def _to_token(raw: Any, spec: Spec) -> str:
    """A JSON value as a word of a command line."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, float) and raw.is_integer() and spec.form == "whole":
        return str(int(raw))
    return raw if isinstance(raw, str) else repr(raw) if isinstance(raw, (int, float)) else json.dumps(raw)
