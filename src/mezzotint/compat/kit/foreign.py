"""Names the trainer of an option or file that is foreign to a command or file, by the tables of all dialects and of
other trainers' names. These are read only for such messages."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from mezzotint import registry
from mezzotint.settings.reading import foreign_names

_DEPTH = 3
"""Levels of a file in which its keys are looked for."""
_FILE = "config_file"
"""A file of options, which has no effect of its own."""
_MOST = 3
"""Alternatives in a message."""
_RECIPE = {("schema", "data"): "is a recipe of Mezzotint: write it without --as"}


def suggest(name: str, specs: Mapping[str, Any], start: str = "") -> str:
    """A remedy for a name that is unknown here and an option of other trainers: whose it is, and the option of the same
    effect, if there is one; "" for any other name. specs: the options here. start: before options, such as `--`."""
    tables = _tables()
    paths = {trainer: table[name] for trainer, table in tables.items() if name in table and specs.keys() - table.keys()}
    known = foreign_names.meaning_of(name)
    if known is not None:
        paths |= {trainer: known.path or "" for trainer in known.origins if trainer.lower() not in tables}
    if not paths:
        return ""
    *most, last = sorted(paths, key=str.lower)
    owners = f"{', '.join(most)} and {last}" if most else last
    return f"it is an option of {owners}; {_alternative(set(paths.values()), specs, start)}"


def describe_file(tree: Any, known: Collection[str] = ()) -> str:
    """What a file is that is not of the kind that is read, and where it belongs; "" if it is not recognized. tree: its
    content. known: the keys of the kind that is read."""
    keys, marks = set(_keys(tree, _DEPTH)), _marks()
    ranks = {mark: (len(mark), set(mark).issubset(known)) for mark in marks if keys.issuperset(mark)}
    best = max(ranks, key=ranks.__getitem__, default=())
    return "" if set(best).issubset(known) else marks[best]


def find_dialect(script: str, but: str) -> str:
    """The dialect that reads commands of a script; "" if there is none. but: a dialect whose trainer is not meant."""
    own = {trainer for trainer, dialect in _dialects() if dialect.name == but}
    others = (dialect for trainer, dialect in _dialects() if trainer not in own)
    return next((dialect.name for dialect in others if script in (*dialect.scripts, *dialect.needless)), "")


def _alternative(paths: set[str], specs: Mapping[str, Any], start: str) -> str:
    """What to write instead of an option that sets one of `paths`."""
    same = [flag for flag, spec in specs.items() if paths & set(getattr(spec, "to", ())[:1]) and flag != _FILE]
    if not 0 < len(same) <= _MOST:
        return "leave it out"
    *most, last = (f"{start}{flag}" for flag in same)
    return f"write {', '.join(most)} or {last}" if most else f"write {last}"


def _keys(tree: Any, depth: int) -> Iterator[str]:
    """The keys of an object, of the objects in it, and of the first of a list of them."""
    if isinstance(tree, list):
        tree = tree[0] if tree else None
    if isinstance(tree, dict) and depth:
        for key, value in tree.items():
            yield str(key).lstrip("-")
            yield from _keys(value, depth - 1)


@functools.cache
def _dialects() -> tuple[tuple[str, Any], ...]:
    """(trainer, dialect) of all dialects but those of packages that are not imported."""
    dialects: list[tuple[str, Any]] = []
    for name in registry.names("dialects", skip_unimported=True):
        module = registry.find("dialects", name)
        several = getattr(module, "DIALECTS", None)
        dialects.append((name.partition("-")[0], several[name]) if several else (name, module.DIALECT))
    return tuple(dialects)


@functools.cache
def _tables() -> Mapping[str, Mapping[str, str]]:
    """By trainer: its options, each with the recipe path that it sets, "" for none."""
    tables: dict[str, dict[str, str]] = {}
    for trainer, dialect in _dialects():
        rows = (*dialect.rows, *(row for table in dialect.tables for row in table.rows))
        own = {row.flag: row.to[0] if row.to else "" for row in rows}
        tables[trainer] = dict.fromkeys(dialect.other_keys, "") | tables.get(trainer, {}) | own
    return tables


def _marks() -> dict[tuple[str, ...], str]:
    """By the keys that only files of a kind have: what they are."""
    of_dialects = {mark: text for _, dialect in _dialects() for mark, text in dialect.marks.items()}
    return {**of_dialects, **foreign_names.file_marks(), **_RECIPE}
