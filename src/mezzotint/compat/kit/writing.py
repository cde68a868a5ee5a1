"""The way back: the options of another trainer for a recipe, by proposing and verifying.

Rows with one recipe path are inverted, and the dialect's `Writing` proposes the rest. The dialect then translates the
proposal forward. Options that it refuses are left out, and so are options that change nothing, which are defaults.
Settings that still differ become notes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mezzotint.compat.kit.comparing import View, describe, find_differences
from mezzotint.compat.kit.tables import write_tables
from mezzotint.errors import RecipeError
from mezzotint.settings.counting import format_count
from mezzotint.settings.reading.paths import owner
from mezzotint.settings.reading.read import read_text
from mezzotint.settings.reading.translation import Launched, WrittenRecipe, flag_name
from mezzotint.settings.reading.wording import format_value
from mezzotint.settings.reading.writing import as_yaml
from mezzotint.settings.recipe import Recipe

if TYPE_CHECKING:
    from mezzotint.compat.kit.dialect import Dialect, Row

Values = dict[str, Any]
_STEPS = re.compile(r"(\d+) steps?")
_TYPES: Mapping[str, tuple[type, ...]] = {"text": (str,), "whole": (int,), "number": (int, float), "switch": (bool,)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How the options of a dialect follow from a recipe. propose: functions from a recipe to values by flag, in
    addition to those of the rows; None: no value, whatever the row says. They raise RecipeError for recipes that the
    trainer cannot run. keep: flags that are written even if they have their default, where that default surprises.
    lost: the reason for a note, by recipe path; "" for none, where another note says it. quiet: settings that are only
    counted, as those of files, logs, previews and speed for which the trainer has no option. essential: settings
    without which it is another training; if one is lost, there is no result. remarks: notes on what a recipe does not
    determine. command: the words before the options, the script included; by default the dialect's first script.
    files: the files for these values, (name, text) by the flag that names them; by default a YAML file for each flag of
    `Dialect.tables`. With a file for `Dialect.config`, options are in it and not on the command line."""

    propose: tuple[Callable[[Recipe, Launched], Mapping[str, Any]], ...]
    keep: frozenset[str] = frozenset()
    lost: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    quiet: frozenset[str] = frozenset()
    essential: tuple[str, ...] = ("model.family", "model.train")
    remarks: Callable[[Recipe], Iterable[str]] = lambda recipe: ()
    command: Callable[[Recipe, Launched], Sequence[str]] | None = None
    files: Callable[[Mapping[str, Any]], Mapping[str, tuple[str, str]]] | None = None


@dataclass(frozen=True, slots=True)
class Recipient:
    """A trainer that is written for. command: the words before the options."""

    dialect: Dialect
    writing: Writing
    launched: Launched
    command: tuple[str, ...]

    @property
    def config(self) -> str:
        """The flag of the file that has the options, "" if they are on the command line."""
        return self.dialect.config if self.writing.files is not None else ""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What a proposal translates to: the settings as a tree, and those of the recipe by path."""

    settings: Mapping[str, Any]
    view: View


def write_recipe(dialect: Dialect, writing: Writing, recipe: Recipe, launched: Launched) -> WrittenRecipe:
    """The options of a trainer for a recipe, with a note for each setting that is lost. Raises RecipeError E1026 for a
    recipe that it cannot run."""
    start = writing.command(recipe, launched) if writing.command is not None else dialect.scripts[:1]
    target, view = Recipient(dialect, writing, launched, tuple(start)), describe(recipe)
    values = invert(dialect.rows, view, launched)
    for table in dialect.tables:
        if not table.each:
            values |= {table.prefix + flag: value for flag, value in invert(table.rows, view, launched).items()}
    proposals: Values = {}
    for propose in writing.propose:
        proposals |= propose(recipe, launched)
    values = {flag: value for flag, value in {**proposals, **values, **proposals}.items() if value is not None}
    values, current = _drop_refused(target, values)
    for flag in reversed([flag for flag in values if flag not in writing.keep]):
        fewer = {name: value for name, value in values.items() if name != flag}
        try:
            smaller = _translate(target, fewer, current)
        except RecipeError:
            continue
        is_closer = find_differences(view, smaller.view) < find_differences(view, current.view)
        if (is_closer and flag not in proposals) or not find_differences(current.view, smaller.view):
            values, current = fewer, smaller
    for path in writing.essential:
        if path in find_differences(view, current.view):
            got = f"{path}={format_value(view[path])}"
            raise RecipeError(f"{dialect.name} cannot run a recipe with {got}", code="E1026")
    files = _write_files(target, values)
    notes = (*_notes(dialect, writing, view, current.view), *writing.remarks(recipe))
    return WrittenRecipe(tuple(_build_command(target, values, files, "")), dict(files.values()), notes)


def invert(rows: Iterable[Row], view: Mapping[str, Any], launched: Launched) -> Values:
    """Values by flag of the rows that set one recipe path, from what a recipe has there."""
    values: Values = {}
    for row in rows:
        paths = {path for path in row.to if path not in row.fixed}
        if row.outcome in ("mapped", "computed") and len(paths) == 1 and row.from_json is None:
            value = _invert(row, view.get(paths.pop()), view, launched)
            values |= {} if value is None else {row.flag: value}
    return values


def _invert(row: Row, value: Any, view: Mapping[str, Any], launched: Launched) -> Any:
    if row.values:
        return next((key for key, ours in row.values.items() if ours == value and type(ours) is type(value)), None)
    if isinstance(value, list) and len(value) == 1 and row.form not in ("texts", "numbers"):
        value = value[0]
    if row.form == "whole" and isinstance(value, str) and (steps := _STEPS.fullmatch(value)):
        value = int(steps[1])
    if row.form == "whole" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if row.unit == "steps" and isinstance(value, int):
        value *= view["optim.accumulation"] or 1
    elif row.unit and isinstance(value, int):
        value = value // launched.processes if value % launched.processes == 0 else None
    if row.form in ("texts", "numbers"):
        kinds = _TYPES["text" if row.form == "texts" else "number"]
        fits = isinstance(value, list) and bool(value) and all(isinstance(one, kinds) for one in value)
    else:
        fits = isinstance(value, _TYPES[row.form]) and isinstance(value, bool) == (row.form == "switch")
    return value if fits and (not row.choices or value in row.choices) else None


def _drop_refused(target: Recipient, values: Values) -> tuple[Values, Attempt]:
    """The values without those that the dialect refuses, and the settings that they give."""
    while True:
        try:
            return values, _translate(target, values)
        except RecipeError as error:
            refused = {problem.where for problem in error.problems}
            names = _display_names(target, values, _write_files(target, values))
            fewer = {flag: value for flag, value in values.items() if names[flag] not in refused}
            if len(fewer) == len(values):
                raise RecipeError(f"{target.dialect.name} cannot run this recipe: {error}", code="E1026") from error
            values = fewer


def _translate(target: Recipient, values: Values, known: Attempt | None = None) -> Attempt:
    """The settings that a proposal gives; `known` if they are the same. Raises RecipeError as `Dialect.translate`, also
    for invalid settings."""
    dialect, files = target.dialect, _write_files(target, values)
    with TemporaryDirectory() as folder:
        for name, text in files.values():
            (Path(folder) / name).write_text(text, "utf-8")
        translated = dialect.translate(_build_command(target, values, files, f"{folder}/"), target.launched)
    if known is not None and translated.settings == known.settings:
        return known
    try:
        recipe = read_text(as_yaml(translated.settings, {}), dialect.name).recipe
        return Attempt(translated.settings, describe(recipe))
    except RecipeError as error:
        named = [problem._replace(where=translated.origin.get(problem.where, "")) for problem in error.problems]
        raise RecipeError(dialect.name, problems=named) from error


def _build_command(target: Recipient, values: Values, files: Mapping[str, tuple[str, str]], folder: str) -> list[str]:
    """The command line: options that are not in files, then the files."""
    flags = set() if target.config in files else {row.flag for row in target.dialect.rows}
    options = []
    for flag, value in values.items():
        if flag in flags and flag not in files:
            each = value if isinstance(value, list) else [value]
            options += [f"--{flag}={value}"] if len(each) == 1 else [f"--{flag}", *map(str, each)]
    return [*target.command, *options, *(f"--{flag}={folder}{name}" for flag, (name, _) in files.items())]


def _write_files(target: Recipient, values: Values) -> Mapping[str, tuple[str, str]]:
    if target.writing.files is not None:
        return target.writing.files(values)
    tables = target.dialect.tables
    return {
        flag: (f"{flag}.yaml", write_tables([table for table in tables if table.flag == flag], values))
        for flag in dict.fromkeys(table.flag for table in tables)
    }


def _display_names(target: Recipient, values: Values, files: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """The name of each flag in messages."""
    prefixes = {table.prefix: files[table.flag][0] for table in target.dialect.tables if table.flag in files}
    prefixes |= {"": files[target.config][0]} if target.config in files else {}
    return {flag: flag_name(flag, prefixes.get(flag[: flag.find(":") + 1], "")) for flag in values}


def _notes(dialect: Dialect, writing: Writing, expected: View, actual: View) -> list[str]:
    rows = [*dialect.rows, *(row for table in dialect.tables for row in table.rows)]
    mentioned = {path for row in rows for path in row.to}
    notes, count = [], 0
    different = find_differences(expected, actual)
    for path in (path for path in expected if path in different):
        name = re.sub(r"^data\.sets\.\d+\.", "data.", path)
        owned, reason = owner(name), writing.lost.get(name)
        if path not in actual and f"{path.rpartition('.')[0]}.kind" in different:
            continue  # it belongs to the other kind, which has a note
        if name in writing.quiet or (owned is not None and owned[0].change == "free" and name not in mentioned):
            count += 1
        elif reason != "":
            reason = reason or f"{dialect.name} uses {format_value(actual.get(path))}"
            notes.append(f"{path}={format_value(expected[path])} is lost: {reason}")
    if count:
        notes.append(f"left out: {format_count(count, 'more setting')} of files, logs, previews and speed")
    return notes
