"""From plain values to a Recipe, or to all of its problems in one pass.

pydantic checks the types. Values that it would convert silently (the text "4" for a number, "no" for false) are refused
first. After the first pass the invalid values are removed and the rest is checked again, so that a check across two
sections is reported together with a mistyped key.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from mezzotint import __version__
from mezzotint.errors import did_you_mean
from mezzotint.settings.base import Section
from mezzotint.settings.reading.foreign_names import value_of
from mezzotint.settings.reading.nearest import advice, nearest
from mezzotint.settings.reading.paths import Shape, by_path, join_lines, owner, sections, sections_in, shape_of, word_of
from mezzotint.settings.reading.wording import NUMBER, format_value, message_for
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.renamed import new_value

KeyPath = tuple[str | int, ...]

_PROPOSALS = 50
"""How many unknown keys get a proposal; a file with more is probably not a recipe."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One problem. key_path: its keys in the tree (a section for a check of several settings). where: the dotted path
    to show. mentions: other settings that the sentence names."""

    key_path: KeyPath
    where: str
    message: str
    remedy: str
    code: str
    mentions: tuple[str, ...] = ()


@dataclass(slots=True)
class _Pass:
    tree: dict[str, Any]
    issues: list[Issue] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)


def check(tree: dict[str, Any]) -> tuple[Recipe | None, tuple[Issue, ...]]:
    """Validates a tree. Returns the recipe, or None with every problem."""
    work = _Pass(copy.deepcopy(tree))
    for key_path, message, remedy in list(_wrong_types(tree)):
        _note(work, Issue(key_path, dotted_path(key_path), message, remedy, "E1002"), prune=True)
    for round_number in range(8):
        try:
            recipe = Recipe.model_validate(work.tree)
        except ValidationError as error:
            if not _gather(work, error, first=round_number == 0):
                break
        else:
            return (None if work.issues else recipe), tuple(work.issues)
    return None, tuple(work.issues)


def dotted_path(key_path: KeyPath) -> str:
    """A key path as written on a command line."""
    return ".".join(str(part) for part in key_path)


def _gather(work: _Pass, error: ValidationError, *, first: bool) -> bool:
    """Collects pydantic's errors; later passes add only checks that no removed value can have caused. Returns whether
    anything was removed, so another pass can find more."""
    pruned = False
    entries = error.errors(include_url=False)
    key_paths = [_find_key_path(work.tree, tuple(entry["loc"])) for entry in entries]  # before anything is removed
    for entry, key_path in zip(entries, key_paths, strict=True):
        issue = _issue(key_path, dict(entry), propose=len(work.issues) < _PROPOSALS)
        if first or (entry["type"] == "value_error" and not _in_doubt(issue, work.doubtful)):
            _note(work, issue, prune=False)
        pruned = _remove(work.tree, key_path) or pruned
        work.doubtful.add(dotted_path(key_path))
    return pruned


def _note(work: _Pass, issue: Issue, *, prune: bool) -> None:
    work.issues.append(issue)
    work.doubtful.add(issue.where)
    if issue.code == "E1001" and issue.remedy:
        work.doubtful.add(nearest(issue.where) or issue.where)
    if prune:
        _remove(work.tree, issue.key_path)


def _in_doubt(issue: Issue, doubtful: set[str]) -> bool:
    """Whether a check mentions a value that was removed, so its claim may be wrong."""
    named = {issue.where, *issue.mentions} - {""}
    section = dotted_path(issue.key_path)
    if section and any(path.startswith(section + ".") for path in doubtful):
        return True
    return any(_is_related(a, b) for a in named for b in doubtful)


def _is_related(a: str, b: str) -> bool:
    return a == b or a.startswith(b + ".") or b.startswith(a + ".")


def _remove(tree: dict[str, Any], key_path: KeyPath) -> bool:
    """Removes the setting or section at a key path, so that its default is used. Entries of lists are
    removed with their list. Returns whether anything was removed."""
    keys = [str(part) for part in key_path]
    node: Any = tree
    for index, key in enumerate(keys):
        if not isinstance(node, dict) or key not in node:
            return False
        path = ".".join(keys[: index + 1])
        if index + 1 == len(keys) or path in by_path() or not isinstance(node[key], dict):
            del node[key]
            return True
        node = node[key]
    return False


def _find_key_path(tree: Any, loc: tuple[str | int, ...]) -> KeyPath:
    """pydantic's location without the names of union members, which are not in recipes."""
    key_path: list[str | int] = []
    node: Any = tree
    for index, part in enumerate(loc):
        if part in (node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()):
            node = node[part]
        elif index + 1 < len(loc) or (isinstance(part, int) and not isinstance(node, list)):
            continue
        key_path.append(part)
    return tuple(key_path)


def _issue(key_path: KeyPath, entry: dict[str, Any], *, propose: bool) -> Issue:
    if entry["type"] == "union_tag_invalid":
        key_path = (*key_path, str(entry["ctx"]["discriminator"]).strip("'"))
    path = dotted_path(key_path)
    owned = owner(path)
    setting = owned[0] if owned else None
    kind = entry["type"]
    if kind == "extra_forbidden":
        if path in by_path():  # a setting of another member of a choice, such as another optimizer's
            kinds = [part for part in entry["loc"] if part not in key_path]
            return Issue(key_path, path, f"is not a setting of {kinds[-1] if kinds else 'this choice'}", "", "E1001")
        return Issue(key_path, path, "unknown key", advice(path) if propose else "", "E1001")
    if kind == "value_error":
        text = join_lines(str(entry["ctx"]["error"]))
        names = mentioned_settings(text)
        where = path if path in by_path() else (names[0] if names else path)
        return Issue(key_path, where or "recipe", text, "", "E1003", names)
    if kind == "missing" and isinstance(key_path[-1], int):
        key_path = key_path[:-1]
        return Issue(key_path, dotted_path(key_path), f"has too few entries, got {_length(entry)}", "", "E1002")
    code, message = message_for(entry, setting)
    return Issue(key_path, path, message, _choice_hint(setting, entry), code)


def _length(entry: dict[str, Any]) -> str:
    value = entry.get("input")
    return str(len(value)) if isinstance(value, (list, tuple)) else format_value(value)


def _choice_hint(setting: Any, entry: dict[str, Any]) -> str:
    if setting is None:
        return ""
    if entry["type"] == "union_tag_invalid":  # such as `optim.optimizer.kind`
        return _near_choice(setting.path, entry["ctx"]["tag"], str(entry["ctx"]["expected_tags"]).replace("'", ""))
    if entry["type"] != "literal_error":
        return ""
    if setting.path == "schema":
        return _schema_hint(entry["input"])
    return _near_choice(setting.path, entry["input"], ", ".join(setting.shape.choices))


def _near_choice(path: str, text: object, listed: str) -> str:
    choices = listed.split(", ")
    now = new_value(path, text)
    if now != text:
        return f"it was renamed to {now}; `mezzotint migrate RECIPE` renames it in a file"
    counterpart = value_of(path, text)
    if counterpart is not None and counterpart.partition(" ")[0] in choices:
        return f"did you mean {counterpart}?"
    return did_you_mean(str(text).lower(), choices)


def _schema_hint(version: object) -> str:
    if isinstance(version, int) and version > 1:
        return f"the recipe needs a later Mezzotint than this one ({__version__}); update Mezzotint"
    return "write `schema: 1`, or leave the line out"


def mentioned_settings(text: str) -> tuple[str, ...]:
    """The settings and sections that a sentence names, in order."""
    names = re.findall(r"[a-z_0-9]+(?:\.[a-z_0-9]+)+", text)
    return tuple(dict.fromkeys(name for name in names if name in by_path() or name in sections()))


def _wrong_types(tree: Any) -> Iterator[tuple[KeyPath, str, str]]:
    """(key_path, message, remedy) of every value that pydantic would convert to another type."""
    yield from _wrong_types_in_section(Recipe, tree, ())


def _wrong_types_in_section(section: Any, tree: Any, key_path: KeyPath) -> Iterator[tuple[KeyPath, str, str]]:
    if not isinstance(tree, dict):
        return
    for name, info in section.model_fields.items():
        key = word_of(name, info)
        if key not in tree:
            continue
        nested = sections_in(info.annotation)
        inside = (*key_path, key)
        if nested:
            yield from _wrong_types_in_section(_select(nested, tree[key]), tree[key], inside)
        else:
            yield from _wrong_types_in_value(shape_of(info.annotation, tuple(info.metadata)), tree[key], inside)


def _select(options: tuple[Any, ...], tree: Any) -> Any:
    """The class that `kind` selects, otherwise the first."""
    kind = tree.get("kind") if isinstance(tree, dict) else None
    for option in options:
        info = option.model_fields.get("kind")
        if info is not None and info.default == kind:
            return option
    return options[0]


def _wrong_types_in_value(shape: Shape, value: Any, key_path: KeyPath) -> Iterator[tuple[KeyPath, str, str]]:
    if isinstance(shape.base, type) and issubclass(shape.base, Section):
        yield from _wrong_types_in_section(shape.base, value, key_path)
    elif shape.is_list:
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _wrong_types_in_value(shape.item(index), item, (*key_path, index))
        elif shape.one_for_many:
            yield from _wrong_types_in_value(shape.item(0), value, key_path)
    elif shape.is_map and isinstance(value, dict):
        for key, item in value.items():
            yield from _wrong_types_in_value(shape.item(0), item, (*key_path, key))
    elif shape.base is bool and isinstance(value, (str, int, float)) and not isinstance(value, bool):
        yield key_path, f"must be true or false, got {format_value(value)}", _switch_hint(value)
    elif shape.base in NUMBER and isinstance(value, (str, bool)):
        yield key_path, f"must be {NUMBER[shape.base]}, got {format_value(value)}", _number_hint(value)


def _switch_hint(value: Any) -> str:
    word = str(value).lower()
    if word in ("yes", "on", "1", "true", "y", "1.0"):
        return "write true"
    return "write false" if word in ("no", "off", "0", "false", "n", "0.0") else ""


def _number_hint(value: Any) -> str:
    quoted = isinstance(value, str) and re.fullmatch(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?", value)
    return "write it without quotes" if quoted else ""
