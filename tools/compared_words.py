"""The tables of `compare_with.toml`: words that were renamed, and differences that are expected.

Journeys are written in the oldest words. `Words.translate_line` puts a command line into the words of one tree; other
methods put what a tree wrote into the newest words, so that both can be compared.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

TABLE = Path("tools") / "compare_with.toml"
SETTING = re.compile(r"([a-z_]\w*(?:\.\w+)*)(\+?=)(.*)", re.DOTALL)
Table = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Expected:
    """A difference that is meant. journey, kind: patterns with *. difference: a regular expression."""

    journey: str
    kind: str
    difference: str
    reason: str

    def matches(self, journey: str, kind: str, difference: str) -> bool:
        is_there = fnmatchcase(journey, self.journey) and fnmatchcase(kind, self.kind)
        return is_there and re.search(self.difference, difference) is not None


@dataclass(frozen=True)
class Words:
    """Old words and the new ones, by kind. An empty new word: the thing is gone."""

    commands: Table = field(default_factory=dict)
    options: Table = field(default_factory=dict)
    settings: Table = field(default_factory=dict)
    values: Table = field(default_factory=dict)
    recipes: Table = field(default_factory=dict)
    dialects: Table = field(default_factory=dict)
    names: Table = field(default_factory=dict)

    # command lines and recipes, from the oldest words to those of a tree

    def translate_line(self, words: Sequence[str]) -> tuple[str, ...]:
        """The words after `mezzotint`. What follows `--` is another trainer's and stays."""
        end = words.index("--") if "--" in words else len(words)
        translated: list[str] = []
        for number, word in enumerate(words[:end]):
            if number == 0:
                translated += self.commands.get(word, word).split()
            elif words[number - 1] == "--as":
                translated.append(self.dialects.get(word, word))
            elif word.startswith("--"):
                translated += self._translate_option(word)
            elif match := SETTING.fullmatch(word):
                translated += self._translate_setting_word(*match.groups())
            else:
                translated.append(self.recipes.get(word) or (self.translate_name(word) if "/" in word else word))
        return (*translated, *words[end:])

    def translate_recipe(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """A recipe as YAML gives it."""
        translated: dict[str, Any] = {}
        for path, value in leaves_of(tree):
            for new, changed in self.translate_setting(path, value):
                place = translated
                *sections, key = new.split(".")
                for section in sections:
                    place = place.setdefault(section, {})
                place[key] = changed
        return translated

    def _translate_option(self, word: str) -> list[str]:
        if word in self.options:
            return list(filter(None, [self.options[word]]))
        option, separator, value = word.partition("=")
        new = self.options.get(option, option)
        return [f"{new}{separator}{value}"] if new else []

    def _translate_setting_word(self, path: str, operator: str, text: str) -> list[str]:
        value = None if text.startswith("{world}") else _parse(text)
        if isinstance(value, dict) and value:
            pairs = [
                pair for inner, leaf in leaves_of(value) for pair in self.translate_setting(f"{path}.{inner}", leaf)
            ]
            if pairs == [(f"{path}.{inner}", leaf) for inner, leaf in leaves_of(value)]:
                return [f"{path}{operator}{text}"]
            return [f"{new}{operator}{_in_one_line(leaf)}" for new, leaf in pairs]
        if isinstance(value, list):
            pairs = list(self.translate_setting(path, value))
            return [f"{new}{operator}{text if leaf == value else _in_one_line(leaf)}" for new, leaf in pairs]
        pairs = list(self.translate_setting(path, text))
        return [f"{new}{operator}{'null' if leaf is None else leaf}" for new, leaf in pairs]

    # settings and names, to the newest words

    def translate_setting(self, path: str, value: Any) -> Iterator[tuple[str, Any]]:
        """The pair of a path and its value in new words; nothing if it is gone."""
        new = self.translate_path(path)
        if isinstance(value, list):
            changed: Any = [inner for old in value if (inner := self._translate_value(path, old)) != ""]
        else:
            changed = self._translate_value(path, value)
        if new and (changed != "" or value == ""):
            yield new, changed

    def _translate_value(self, path: str, value: Any) -> Any:
        plain = re.sub(r"(\.\d+)+$", "", path)  # of a list
        new = self.values.get(f"{plain}={_in_one_line(value)}", value)
        return None if new == "null" else new

    def translate_path(self, path: str) -> str:
        """Of a setting. The longest row holds; a path that is new already stays."""
        for old in sorted(self.settings, key=len, reverse=True):
            new = self.settings[old]
            if _is_below(path, old) and not (new and _is_below(path, new)):
                return new + path[len(old) :] if new else ""
        return path

    def translate_name(self, name: str) -> str:
        """Of a tensor, a metric or a file: renamed words in it, where no letter stands beside them."""
        for old, new in self.names.items():
            name = re.sub(_whole(new) + "|" + _whole(old) if new else _whole(old), new, name)
        return name

    def restore_name(self, name: str) -> str:
        """The reverse of `translate_name`, to tell files by their oldest names."""
        for old, new in self.names.items():
            name = re.sub(_whole(new), old, name) if new else name
        return name

    def translate_listed(self, word: str) -> str:
        """Of a name that `ls` prints, of whatever kind."""
        return self.recipes.get(word) or self.dialects.get(word) or self.translate_name(word)

    def restore_recipe(self, name: str) -> str:
        """The oldest name of a recipe that ships."""
        return next((old for old, new in self.recipes.items() if new == name), name)


@dataclass(frozen=True)
class Tables:
    """All that `compare_with.toml` of a tree holds. across_versions: why nothing is continued across versions; "" if it
    is."""

    words: Words
    expected: tuple[Expected, ...] = ()
    across_versions: str = ""


def read_tables(tree: Path) -> Tables:
    """Of a tree without the file, empty ones."""
    path = tree / TABLE
    return parse_tables(path.read_text(encoding="utf-8")) if path.is_file() else Tables(Words())


def parse_tables(text: str) -> Tables:
    """Raises ValueError if across_versions is switched off without a reason, TypeError for a table that is unknown."""
    document = tomllib.loads(text)
    switch = document.get("across_versions", {})
    is_off = not switch.get("judged", True)
    if is_off and not switch.get("reason"):
        raise ValueError(f"{TABLE}: across_versions.judged is false; write across_versions.reason")
    return Tables(
        Words(**document.get("renamed", {})),
        tuple(Expected(**row) for row in document.get("expected", [])),
        switch["reason"] if is_off else "",
    )


def leaves_of(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of nested mappings; lists and empty mappings are values."""
    for key, value in tree.items():
        inner = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping) and value:
            yield from leaves_of(value, inner)
        else:
            yield inner, value


def _parse(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def _in_one_line(value: Any) -> str:
    """As it is written on a command line."""
    if isinstance(value, str):
        return value
    return str(yaml.safe_dump(value, default_flow_style=True, width=10**6)).removesuffix("...\n").strip()


def _is_below(path: str, section: str) -> bool:
    return path == section or path.startswith(f"{section}.")


def _whole(word: str) -> str:
    return rf"(?<![A-Za-z]){re.escape(word)}(?![A-Za-z])"
