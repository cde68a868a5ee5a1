"""Settings files that a foreign command names, in TOML, JSON or YAML, parsed as strictly as the command: an unknown key
is an error that names the nearest one, and values must have the type of their key. Null and empty text mean the
default.

`load` reads a file into plain values with the lines of their keys, `read_object` takes the keys of one object of it,
and `read` does both for a file whose top is that object.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mezzotint import outside
from mezzotint.compat.kit import foreign, reading
from mezzotint.compat.kit.reading import Parsed, Spec, Value
from mezzotint.errors import Problem, RecipeError, did_you_mean, find_closest
from mezzotint.settings.reading import yaml_rules
from mezzotint.settings.reading.yaml_rules import KeyPath

Kind = Literal["JSON", "TOML", "YAML"]

_LIMIT = 4_000_000
"""Largest size of a file, in bytes: about a thousand times a usual one."""
_MAX_PROBLEMS = 50
"""In one object of a file; after that reading stops."""
_KINDS: Mapping[str, Kind] = {".json": "JSON", ".toml": "TOML", ".yaml": "YAML", ".yml": "YAML"}
_YAML_SWITCHES = {**dict.fromkeys(("yes", "on"), "true"), **dict.fromkeys(("no", "off"), "false")}
_JSON_HINTS = {
    "escape": "write a backslash twice",
    "',' delimiter": "a comma is missing here, or at the end of the line before",
    "property name": "look for a comma too many in this line and the one before",
    "Expecting value": "write texts in double quotes, and no comma after the last value",
    "Unterminated": "close the text with a double quote",
}
_TOML_HINTS = {
    "'\\\\'": "write paths in single quotes",
    "overwrite": "keep one",
    "twice": "keep one",
    "'\\n'": "a text is not closed; look at its quotes",
    "Expected '\"'": "a text is not closed; look at its quotes",
    'Expected "\'"': "a text is not closed; look at its quotes",
    "Invalid value": "write texts in quotes, and true or false in lower case",
    "Expected newline": "write one key = value a line, and texts in quotes",
    "after a key": "write key = value",
}
"""What to do about an error, by a part of the library's message."""
_TOML_TABLE = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?")
_TOML_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A file as plain values. name: in messages, the last part of its path. tree: its top object or list. lines: of
    keys and list entries, where they are known."""

    name: str
    kind: Kind
    tree: Any
    lines: Mapping[KeyPath, int]

    def at(self, key_path: KeyPath) -> Any:
        """The value at a key path, None if there is none."""
        value = self.tree
        for part in key_path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def line_near(self, key_path: KeyPath) -> int | None:
        """The line of a value, or of the nearest enclosing one; None where it is not known."""
        ends = (key_path[:end] for end in range(len(key_path), 0, -1))
        return next((self.lines[end] for end in ends if end in self.lines), None)

    def where(self, key_path: KeyPath) -> str:
        """A key as messages name it: `a.b.0.c in train.yaml`."""
        return f"{'.'.join(map(str, key_path)) or 'the file'} in {self.name}"

    def problem(
        self, key_path: KeyPath, message: str, remedy: str = "", code: str = "E1018", *, called: str = ""
    ) -> Problem:
        """A problem of a key, with its line. called: its name in messages, by default the whole key path."""
        where = f"{called} in {self.name}" if called else self.where(key_path)
        return Problem(where, message, remedy, code, self.line_near(key_path))


def file_name(name: str) -> str:
    """The name of a file in messages: the last part of its path."""
    return re.split(r"[/\\]", name)[-1]


def has_known_suffix(name: str) -> bool:
    """Whether a word of a command is the name of a JSON, TOML or YAML file."""
    return not name.startswith("-") and Path(name).suffix.lower() in _KINDS


def describe(name: str) -> str:
    """What a file is, see `foreign.describe_file`; why it cannot be read; "" if neither is known."""
    try:
        return foreign.describe_file(load(name).tree)
    except RecipeError as error:
        return error.message.removeprefix(f"{name} ")


def read(name: str, flag: str, specs: Mapping[str, Spec], *, flatten: bool = False) -> Parsed:
    """The values of a file by key, with dots for nested keys. flag: the name in messages of the flag that names the
    file. flatten: as in `read_object`. Does not raise: `problems` has E1016 for unknown keys, E1017 for invalid values
    and unreadable files."""
    try:
        file = load(name)
    except RecipeError as error:
        return Parsed(problems=[Problem(flag, error.message, "", "E1017")], is_unreadable=True)
    message = ""
    if flatten and file.kind != "TOML":
        message = f"is {file.kind}, and the scripts read TOML"
    elif not isinstance(file.tree, dict):
        message = 'is not a JSON object; write {"key": value, …}'
    parsed = Parsed() if message else read_object(file, specs, flatten=flatten)
    if message or sum(problem.code == "E1016" for problem in parsed.problems) >= max(1, len(parsed.values)):
        message = foreign.describe_file(file.tree, specs) or message
    if not message:
        return parsed
    return Parsed(problems=[Problem(flag, f"{name} {message}", "", "E1017")], is_unreadable=True)


def read_object(
    file: SettingsFile,
    specs: Mapping[str, Spec],
    key_path: KeyPath = (),
    *,
    flatten: bool = False,
    called: str | None = None,
) -> Parsed:
    """The values of one object of a file by key, with dots for keys of nested objects. key_path: of the object; called:
    its name in messages, by default the whole key path. flatten: the names of sections do not matter, as in files whose
    sections only group options; a key may then be in one section only. Does not raise: as `read`, with the line of each
    key where it is known."""
    parsed = Parsed()
    tree = file.at(key_path)
    prefix = key_path if called is None else (called,) if called else ()
    if not isinstance(tree, dict):
        message = f"must be an object, got {_describe(tree)}"
        parsed.problems.append(file.problem(key_path, message, code="E1017", called=".".join(map(str, prefix))))
        return parsed
    sections: dict[str, KeyPath] = {}
    for inside, raw in _flat_entries(tree, specs, ()) if flatten else _entries(tree, specs, ()):
        key = inside[-1] if flatten else ".".join(inside)
        if len(parsed.problems) >= _MAX_PROBLEMS:
            break
        spec = specs.get(key)
        full, name = (*key_path, *inside), ".".join(map(str, (*prefix, *inside)))
        if spec is None:
            parsed.problems.append(_unknown(file, full, key, specs, raw, called=name))
            continue
        if key in sections:
            message = f"is also given as {'.'.join(map(str, sections[key]))}"
            parsed.problems.append(file.problem(full, message, "keep one of them", "E1017", called=name))
            continue
        sections[key] = full
        value, message = _value(spec, raw, file.kind)
        if message:
            parsed.problems.append(file.problem(full, message, code="E1017", called=name))
            parsed.failed.add(key)
            continue
        parsed.values[key] = value
        if (line := file.line_near(full)) is not None:
            parsed.lines[key] = line
    return parsed


def load(name: str) -> SettingsFile:
    """Reads a file by its extension; without a known one, by its content. A key may occur only once in an object.
    Raises RecipeError E1017 with one sentence that names the file, and the line of a syntax error."""
    try:
        text = outside.read_text(Path(name).expanduser(), limit=_LIMIT, encoding="utf-8-sig")
    except outside.NotRegularFile as error:
        raise _unreadable(f"{name} is not a settings file: {error.strerror}") from None
    except OSError as error:
        raise _unreadable(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _unreadable(f"{name} cannot be read: it is not UTF-8") from None
    if not text.strip():
        raise _unreadable(f"{name} is empty")
    kind = _KINDS.get(Path(name).suffix.lower()) or _guess_kind(text)
    match kind:
        case "JSON":
            return SettingsFile(file_name(name), kind, _parse_json(text, name), _find_json_lines(text))
        case "TOML":
            tree = _parse_toml(text, name)
            return SettingsFile(file_name(name), kind, tree, _find_toml_lines(text))
        case _:
            document = _parse_yaml(text, name)
            return SettingsFile(file_name(name), kind, document.tree, document.lines)


def _guess_kind(text: str) -> Kind:
    if text.lstrip().startswith("{"):
        return "JSON"
    try:
        tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return "JSON" if text.lstrip().startswith("[") else "YAML"
    return "TOML"


def _unreadable(message: str) -> RecipeError:
    return RecipeError(message, code="E1017")


def _parse_json(text: str, name: str) -> Any:
    twice: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = dict(pairs)
        if len(entries) < len(pairs):
            keys = [key for key, _ in pairs]
            twice.extend(key for key in entries if keys.count(key) > 1)
        return entries

    try:
        tree = outside.parse_json(text, pairs=once)
    except json.JSONDecodeError as error:
        hint = next((f"; {hint}" for part, hint in _JSON_HINTS.items() if part in error.msg), "")
        raise _unreadable(f"{name} line {error.lineno} is not JSON ({error.msg}){hint}") from None
    except ValueError:
        raise _unreadable(f"{name} is not readable JSON") from None
    if twice:
        raise _unreadable(f"{name} has {', '.join(dict.fromkeys(twice))} more than once; keep one")
    if not isinstance(tree, (dict, list)):
        raise _unreadable(f'{name} is not a JSON object; write {{"key": value, …}}')
    return tree


def _parse_toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, position = str(error).rpartition(" (at ")
        line = re.match(r"line (\d+)", position)
        number = int(line[1]) if line else text.rstrip("\n").count("\n") + 1
        hint = next((f"; {hint}" for part, hint in _TOML_HINTS.items() if part in message), "")
        raise _unreadable(f"{name} line {number} is not TOML ({message}){hint}") from None
    except (RecursionError, ValueError):
        raise _unreadable(f"{name} is not readable TOML") from None


def _parse_yaml(text: str, name: str) -> yaml_rules.Document:
    try:
        document = yaml_rules.load(text, name)
    except RecipeError as error:
        problems, message = error.problems, error.message
    else:
        problems, message = document.problems, ""
    if not problems and not message:
        return document
    if not problems:
        raise _unreadable(f"{name} is not YAML: {message}")
    first = problems[0]
    key = "" if first.where == "file" else f", {first.where}"
    if first.message.startswith("the top of a recipe"):
        raise _unreadable(f"{name} line {first.line or 1} is not key: value")
    rest = f" ({len(problems) - 1} more problems)" if len(problems) > 1 else ""
    remedy = f"; {first.remedy}" if first.remedy else ""
    raise _unreadable(f"{name} line {first.line or 1}{key}: {first.message.replace(' in recipes', '')}{remedy}{rest}")


def _find_json_lines(text: str) -> Mapping[KeyPath, int]:
    """The lines of a JSON text, parsed as YAML, which contains JSON; none of texts that are only valid JSON, and of
    long ones."""
    if len(text) > yaml_rules.MAX_BYTES:
        return {}
    try:
        lines = yaml_rules.load(f'{{"": {text}}}', "").lines
    except RecipeError:
        return {}
    return {key_path[1:]: line for key_path, line in lines.items() if len(key_path) > 1}


def _find_toml_lines(text: str) -> dict[KeyPath, int]:
    """The lines of tables and keys, looked up in the text; keys of inline tables have none."""
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, line in enumerate(text.split("\n"), 1):
        if header := _TOML_TABLE.fullmatch(line):
            table = _resolve_table(_split_toml(header[2]), lines, is_entry=header[1] == "[[")
            lines.setdefault(table, number)
        elif key := _TOML_KEY.match(line):
            lines.setdefault((*table, *_split_toml(key[1])), number)
    return lines


def _split_toml(name: str) -> list[str]:
    """The parts of a dotted key."""
    return [part.strip().strip("\"'") for part in re.findall(r"\"[^\"]*\"|'[^']*'|[^.]+", name)]


def _resolve_table(parts: list[str], lines: Mapping[KeyPath, int], *, is_entry: bool) -> KeyPath:
    """The key path of a table: a part that is a list of tables stands for the last entry, the last part of `[[a.b]]`
    for the next one."""
    table: KeyPath = ()
    for index, part in enumerate(parts):
        table = (*table, part)
        entries = 0
        while (*table, entries) in lines:
            entries += 1
        if is_entry and index == len(parts) - 1:
            table = (*table, entries)
        elif entries:
            table = (*table, entries - 1)
    return table


def _entries(tree: Mapping[str, Any], specs: Mapping[str, Spec], prefix: tuple[str, ...]) -> Iterator[Any]:
    """Yields (keys, value); keys of a known level are nested."""
    for key, raw in tree.items():
        inside = (*prefix, str(key))
        name = ".".join(inside)
        is_level = name not in specs and any(flag.startswith(f"{name}.") for flag in specs)
        if is_level and isinstance(raw, dict):
            yield from _entries(raw, specs, inside)
        elif not (is_level and raw is None):
            yield inside, raw


def _flat_entries(tree: Mapping[str, Any], specs: Mapping[str, Spec], prefix: tuple[str, ...]) -> Iterator[Any]:
    """Yields (keys, value); any object that is not the value of a key is a section."""
    for key, raw in tree.items():
        inside = (*prefix, str(key))
        if isinstance(raw, dict) and key not in specs:
            yield from _flat_entries(raw, specs, inside)
        else:
            yield inside, raw


def _unknown(
    file: SettingsFile, key_path: KeyPath, key: str, specs: Mapping[str, Spec], raw: Any, *, called: str
) -> Problem:
    """The problem of a key that is none of `specs`, or that is a level of them and has no keys."""
    if any(flag.startswith(f"{key}.") for flag in specs):
        remedy = 'write { "key": value }' if file.kind == "JSON" else "write its keys below it"
        return file.problem(key_path, f"must have keys, got {_describe(raw)}", remedy, "E1017", called=called)
    return file.problem(key_path, "unknown key", _suggest_key(key, specs), "E1016", called=called)


def _suggest_key(key: str, specs: Mapping[str, Spec]) -> str:
    """A remedy for an unknown key: whose it is, the nearest key of the same level, or of the whole file."""
    theirs = foreign.suggest(key, specs) or foreign.suggest(key.rpartition(".")[2], specs)
    if theirs:
        return theirs
    home, _, last = key.rpartition(".")
    siblings = {flag.rpartition(".")[2]: flag for flag in specs if flag.rpartition(".")[0] == home}
    inside = f"{home}." if home else ""
    levels = {flag.removeprefix(inside).partition(".")[0] for flag in specs if flag.startswith(inside)} - set(siblings)
    siblings |= {level: f"{inside}{level}" for level in levels}
    near = find_closest(last, siblings, cutoff=0.7)
    if near is not None:
        return f"did you mean {siblings[near]}?"
    return did_you_mean(key, specs, "the trainer has no such key", cutoff=0.8)


def _value(spec: Spec, raw: Any, kind: Kind) -> tuple[Value, str]:
    """(value, "") or (None, problem)."""
    if raw is None or raw == "":
        return None, ""
    if spec.from_json is not None:
        try:
            return spec.from_json(raw), ""
        except ValueError as error:
            return None, str(error)
    if isinstance(raw, dict) or (isinstance(raw, list) and spec.form not in ("texts", "numbers")):
        return None, f"must be one value, got {_describe(raw)}"
    tokens = [_to_token(one, spec, kind) for one in (raw if isinstance(raw, list) else [raw])]
    if not tokens:
        return None, ""
    return reading.value_of(spec, tokens)


def _describe(raw: Any) -> str:
    if isinstance(raw, (dict, list)):
        return "an object" if isinstance(raw, dict) else "a list"
    return "nothing" if raw is None else reading.format_value(raw)


def _to_token(raw: Any, spec: Spec, kind: Kind) -> str:
    """A value of a file as a word of a command line. YAML files of other trainers may have yes, no, on and off."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, float) and raw.is_integer() and spec.form == "whole":
        return str(int(raw))
    if isinstance(raw, str):
        return _YAML_SWITCHES.get(raw.lower(), raw) if kind == "YAML" and spec.form == "switch" else raw
    return repr(raw) if isinstance(raw, (int, float)) else json.dumps(raw, default=str)
