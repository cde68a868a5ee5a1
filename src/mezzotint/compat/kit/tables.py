"""The files of a dialect's tables: their values by flag, read and written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from mezzotint.compat.kit import setting_files
from mezzotint.compat.kit.reading import Parsed
from mezzotint.compat.kit.setting_files import SettingsFile
from mezzotint.errors import Problem, RecipeError
from mezzotint.settings.reading.translation import flag_name
from mezzotint.settings.reading.yaml_rules import KeyPath

if TYPE_CHECKING:
    from mezzotint.compat.kit.dialect import FileTable, Row

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def read_table(table: FileTable, parsed: Parsed, files: dict[str, str], row: Row) -> list[Row]:
    """Reads the file of a table; if it is a default that does not exist, uses the values that ship with the trainer.
    Returns the rows by their flags."""
    name = parsed.values.get(table.flag) or row.default
    own = [] if table.each else [replace(one, flag=table.prefix + one.flag) for one in table.rows]
    if name is None:
        return own
    if parsed.values.get(table.flag) is None and not Path(str(name)).expanduser().is_file():
        files |= {one.flag: f"the {name} that ships" for one in own}
        parsed.under |= {table.prefix + key: value for key, value in table.shipped.items()}
        return own
    called = flag_name(table.flag, files.get(table.flag, ""))
    try:
        file = setting_files.load(str(name))
    except RecipeError as error:
        parsed.problems.append(Problem(called, error.message, "", "E1017"))
        return own
    if not table.each:
        _read_object(table, parsed, files, file, table.at, "")
        return own
    entries = file.at(table.at)
    for index in range(len(entries) if isinstance(entries, list) else 0):
        own += _read_object(table, parsed, files, file, (*table.at, index), f"{table.each}.{index}")
    return own


def _read_object(
    table: FileTable, parsed: Parsed, files: dict[str, str], file: SettingsFile, at: KeyPath, called: str
) -> list[Row]:
    """Adds the values of one object of a file. called: its name in messages. Returns its rows by their flags."""
    start = f"{table.prefix}{called}." if called else table.prefix
    contents = setting_files.read_object(file, {one.flag: one for one in table.rows}, at, called=called)
    parsed.problems += contents.problems
    parsed.values |= {start + key: value for key, value in contents.values.items()}
    parsed.failed |= {start + key for key in contents.failed}
    parsed.lines |= {start + key: line for key, line in contents.lines.items()}
    rows = [replace(one, flag=start + one.flag) for one in table.rows]
    files |= {one.flag: file.name for one in rows}
    return rows


def write_tables(tables: Sequence[FileTable], values: Mapping[str, Any]) -> str:
    """The YAML file of several tables, its keys in the order of their rows."""
    tree: dict[str, Any] = {}
    lists = {table.at: table for table in tables if table.each}
    for table in tables:
        if not table.each:
            for row in table.rows:
                place = (*table.at, *row.flag.split("."))
                if place in lists:
                    _put_entries(tree, lists[place], values)
                elif table.prefix + row.flag in values:
                    _put(tree, place, values[table.prefix + row.flag])
    text: str = yaml.dump(tree, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=120)
    return text


def _put_entries(tree: dict[str, Any], table: FileTable, values: Mapping[str, Any]) -> None:
    for number in range(len(values)):
        start = f"{table.prefix}{table.each}.{number}."
        for row in table.rows:
            if start + row.flag in values:
                _put(tree, (*table.at, number, *row.flag.split(".")), values[start + row.flag])


def _put(tree: Any, place: Sequence[str | int], value: Any) -> None:
    """Sets a value in a tree of mappings and lists, which are created."""
    for part, following in pairwise(place):
        if isinstance(tree, list):
            tree += [{} for _ in range(int(part) + 1 - len(tree))]
            tree = tree[int(part)]
        else:
            tree = tree.setdefault(part, [] if isinstance(following, int) else {})
    tree[place[-1]] = value
