"""A dialect: a table with one row for each option of another trainer, and a function for settings that depend on
several options. `Dialect.translate` turns a foreign command line into a tree of Mezzotint's settings, the flag that
each of them comes from, and a note for everything that is dropped or changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from mezzotint.compat.kit import launchers, reading, setting_files, tables, writing
from mezzotint.compat.kit.launchers import ParsedCommand
from mezzotint.compat.kit.reading import Form, Parsed, Spec, Value
from mezzotint.compat.kit.writing import Writing
from mezzotint.errors import NothingToDo, Problem, RecipeError
from mezzotint.settings.reading.translation import Launched, Note, Translation, WrittenRecipe, flag_name
from mezzotint.settings.reading.yaml_rules import KeyPath
from mezzotint.settings.recipe import Recipe

Outcome = Literal["mapped", "computed", "without effect", "refused", "waits"]


def empty_mapping() -> Any:
    """A dataclass field whose default is an empty mapping."""
    return field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Spec):
    """One option of another trainer. default: that trainer's default.

    Outcomes: `mapped`: `Draft.apply` sets `to[0]` to its value, converted by `values` if that has an entry. `computed`:
    the dialect's function sets `to`, with `Draft.apply` where the row describes how. `without effect`: the run does not
    depend on it; `about` is the reason. `refused`: it is not supported; `about` is the reason. `waits`: it needs
    `feature`, which Mezzotint does not have yet; another value than the default is refused.

    since: the version that introduced it, "" for both. now: the current name of an old option. needs: (condition,
    sentence): a flag that must be on, or FLAG=TEXT; otherwise a mapped row is not applied, and the sentence becomes a
    note if this flag is given. Others: see `Spec`.

    For `Draft.apply`: least, most: bounds of the value; above: an exclusive lower bound. optional: sets nothing without
    a value, or for a switch that is off. unit: "steps" counts micro-batches and is converted to optimizer steps;
    "processes" or "cards" is the batch of each of them and is converted to the batch of all. fixed: settings that are
    set together with it, independent of its value.
    """

    default: Value
    outcome: Outcome
    to: tuple[str, ...] = ()
    about: str = ""
    values: Mapping[Any, Any] = empty_mapping()
    since: str = ""
    now: str = ""
    least: int | None = None
    above: int | None = None
    most: int | None = None
    optional: bool = False
    unit: Literal["", "steps", "processes", "cards"] = ""
    fixed: Mapping[str, Any] = empty_mapping()
    needs: tuple[str, str] = ("", "")
    feature: str = ""

    @property
    def effect(self) -> str:
        """What it acts on, in tables: recipe paths, or the outcome."""
        paths = ", ".join(f"`{path}`" for path in dict.fromkeys((*self.to, *self.fixed))) if self.to else self.outcome
        return f"not yet: {self.feature}" if self.feature else paths


_FORMS: Mapping[type, Form] = {
    str: "text", list: "texts", int: "whole", float: "number", tuple: "numbers", bool: "switch",
}  # fmt: skip


def row(
    flag: str, default: Any, to: str = "", about: str = "", outcome: Outcome = "computed", *,
    on: Any = True, off: Any = False, **more: Any,
) -> Row:  # fmt: skip
    """The row of an option. default: its default value, or the type of its values if it has none (`list` of texts,
    `tuple` of numbers). to: recipe paths, separated by spaces. on, off: the values that a switch sets."""
    kind = default if isinstance(default, type) else type(default)
    more = {"form": _FORMS[kind], "values": {True: on, False: off} if kind is bool else {}, **more}
    return Row(flag=flag, default=None if isinstance(default, type) else default, to=tuple(to.split()), about=about,
               outcome=outcome, **more)  # fmt: skip


def mapped(flag: str, default: Any, to: str, about: str, **more: Any) -> Row:
    """The row of an option whose value is set at a recipe path."""
    return row(flag, default, to, about, "mapped", **more)


def ignored(flag: str, default: Any, about: str, **more: Any) -> Row:
    """The row of an option without effect in Mezzotint. about: the reason."""
    return row(flag, default, "", about, "without effect", **more)


def refused(flag: str, default: Any, about: str, **more: Any) -> Row:
    """The row of an option that is not supported. about: the reason."""
    return row(flag, default, "", about, "refused", **more)


def waits(flag: str, default: Any, feature: str, about: str, **more: Any) -> Row:
    """The row of an option for a feature that Mezzotint does not have yet. feature: its short plain name, the same in
    all rows that wait for it."""
    return row(flag, default, "", about, "waits", feature=feature, **more)


@dataclass(frozen=True, slots=True)
class FileTable:
    """The keys of an object of a settings file (JSON, TOML or YAML) that a flag names. flag: that flag; if its default
    file does not exist, `shipped` is used. prefix: distinguishes the rows' names from flags. rows: a dot in a name is a
    level of the file. shipped: values of the file that comes with the trainer, by name without prefix. at: where in the
    file the object is. each: for a list of such objects, its name in flags: `PREFIXeach.0.KEY`, `PREFIXeach.1.KEY`; a
    file without the list has none."""

    flag: str
    prefix: str
    rows: tuple[Row, ...]
    shipped: Mapping[str, Value] = empty_mapping()
    at: KeyPath = ()
    each: str = ""


FOREIGN_DEFAULTS = MappingProxyType({"data.decode": "full", "run.tf32": False})
"""Defaults of the other trainers that differ from Mezzotint's."""


@dataclass(slots=True)
class Draft:
    """A translation in progress. rows: the trainer's rows by flag. values: the value of every flag, with defaults.
    named: the flags that are given. nulls: those of them that a file sets to null, which means the default. failed:
    flags whose value is invalid, which is reported already. launched: precision and number of processes, including
    those of a pasted launcher. files: by flag or key, the file that contains it, if it is not on the command line;
    lines: where in that file. line: the words of the command line, without launcher. verb: Mezzotint's command, if it
    is not the dialect's usual one. accumulation, division: see `Dialect`."""

    rows: Mapping[str, Row]
    values: Mapping[str, Value]
    named: frozenset[str]
    launched: Launched
    nulls: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    files: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    line: tuple[str, ...] = ()
    verb: str = ""
    accumulation: str = ""
    division: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def set(self, path: str, value: Any, *flags: str) -> None:
        """Sets a recipe path. flags: where the value comes from, the most important first."""
        self._set(path.split("."), value, flags)

    def set_entry(self, path: str, key: str, value: Any, *flags: str) -> None:
        """Sets an entry of a mapping whose key may contain dots, such as a name pattern. flags: see `set`."""
        self._set([*path.split("."), key], value, flags)

    def _set(self, keys: Sequence[str], value: Any, flags: Sequence[str]) -> None:
        current = self.settings
        *sections, last = keys
        for section in sections:
            current = current.setdefault(section, {})
        current[last] = value
        written = [flag for flag in flags if self.is_given(flag)] or [flag for flag in flags if flag in self.named]
        default = f"default of {self.display_name(flags[0])}" if flags else "the dialect"
        self.origin[".".join(keys)] = self.display_name(written[0]) if written else default

    def set_all(self, values: Mapping[str, Any], *flags: str) -> None:
        """Sets several recipe paths, whose values come from the same flags."""
        for path, value in values.items():
            self.set(path, value, *flags)

    def apply(self, *flags: str) -> None:
        """Sets the recipe paths of flags as their rows describe; values out of bounds are refused."""
        for flag in flags:
            row, value = self.rows[flag], self.values[flag]
            if not self.check_bounds(flag) or (row.optional and not value):
                continue
            if row.unit in ("processes", "cards"):
                self.set_batch(flag, self.integer(flag), row.unit)
                value = self.integer(flag) * self.launched.processes
            for path in dict.fromkeys((*row.to, *row.fixed)):
                self.set(path, row.fixed[path] if path in row.fixed else self._row_value(row, path, value), flag)

    def _row_value(self, row: Row, path: str, value: Value) -> Any:
        if row.unit != "steps" or value is None:
            return _map_value(row, value)
        steps = self.steps_of(row.flag)
        return f"{steps} steps" if path.endswith(".every") else steps

    def check_bounds(self, flag: str) -> bool:
        """Whether the value of a flag is within its bounds; refuses the flag otherwise."""
        row, value = self.rows[flag], self.values[flag]
        message = ""
        if isinstance(value, (int, float)):
            if row.least is not None and value < row.least:
                message = f"must be {row.least} or more, got {value}"
            elif row.above is not None and value <= row.above:
                message = f"must be above {row.above}, got {value:g}"
            elif row.most is not None and value > row.most:
                message = f"must be {row.most} or less, got {value:g}"
        if message:
            self.refuse(flag, message, code="E1017")
        return not message

    def set_batch(self, flag: str, each: int, unit: str) -> None:
        """Sets the batch of all processes. each: the batch of one process. unit: the trainer's word for processes."""
        processes = self.launched.processes
        self.set("data.batch_size", each * processes, flag)
        if processes > 1:
            self.note(flag, f"{each} on each of {processes} {unit}: a batch of {each * processes}")

    def to_steps(self, batches: int) -> int:
        """Converts a number of micro-batches to optimizer steps, rounded up."""
        return -(-batches // max(1, self.integer(self.accumulation))) if self.accumulation else batches

    def steps_of(self, flag: str) -> int:
        """The value of a flag, in micro-batches, as optimizer steps; with a note if the dialect has a text for it."""
        count = max(0, self.integer(flag))
        steps = self.to_steps(count)
        if self.division and count and self.is_given(flag) and self.integer(self.accumulation) > 1:
            self.note(flag, self.division.format(count=count, steps=steps, times=self.integer(self.accumulation)))
        return steps

    def is_given(self, flag: str) -> bool:
        """Whether a flag has a value on the command line or in a file."""
        return flag in self.named and flag not in self.nulls

    def display_name(self, flag: str) -> str:
        """The name of a flag in messages: `--flag`, or `key in train.json`."""
        return flag_name(flag, self.files.get(flag, ""))

    def note(self, flag: str, text: str) -> None:
        """Adds a note about something that is dropped, changed or worth knowing."""
        self.notes.append(Note(flag, text, self.files.get(flag, "")))

    def refuse(self, flag: str, message: str, remedy: str = "", code: str = "E1018") -> None:
        """Adds a problem, unless this flag has one already. All problems are reported together."""
        if flag in self.failed or any(problem.where == self.display_name(flag) for problem in self.problems):
            return
        self.problems.append(Problem(self.display_name(flag), message, remedy, code, self.lines.get(flag)))

    def refuse_until(self, feature: str, flag: str, remedy: str = "leave it out") -> None:
        """Refuses a flag whose value needs a feature that Mezzotint does not have yet, as for a row that waits."""
        self.refuse(flag, f"needs {feature}, which Mezzotint does not have yet", remedy)

    def raise_problems(self, dialect: str) -> None:
        """Raises RecipeError with all problems, if there are any."""
        if self.problems:
            raise RecipeError(f"the line of {dialect}", problems=tuple(dict.fromkeys(self.problems)))

    def integer(self, flag: str) -> int:
        """The value of an integer flag."""
        value = self.values[flag]
        assert isinstance(value, int), flag
        return value

    def number(self, flag: str) -> float:
        """The value of a numeric flag."""
        value = self.values[flag]
        assert isinstance(value, (int, float)), flag
        return float(value)

    def text(self, flag: str) -> str:
        """The value of a text flag, "" if it has none."""
        value = self.values[flag]
        assert value is None or isinstance(value, str), flag
        return value or ""


@dataclass(frozen=True, slots=True)
class Tool:
    """Another program of the trainer's project that corresponds to one of Mezzotint's commands. verb: that command.
    scripts: the files that start the program. build_arguments: returns the arguments of the command. `to` of its rows:
    options and settings of the command. files: flags whose values are positional arguments of the command."""

    verb: str
    rows: tuple[Row, ...]
    build_arguments: Callable[[Draft], list[str]]
    scripts: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dialect:
    """The command lines of another trainer. name: as in `--as NAME`. scripts: the files that start it. other_scripts:
    scripts of the same project that this dialect does not read, with what they do. needless: scripts of steps that
    Mezzotint does not need, with the reason. compute: sets what depends on
    several flags, and adds notes. verb: Mezzotint's command. config: the flag of a settings file whose keys are flags;
    the command line overrides it. flat_config: the names of its sections do not matter. tables: other files that flags
    name. expand: parses a command that starts with a shell script of the trainer. tools: other programs of the project.
    accumulation: the flag of the number of micro-batches per optimizer step, "" if the trainer counts optimizer steps;
    division: text of the note about it, with {count}, {steps} and {times}. published_loss: the loss that a published
    benchmark expects after 101 steps. write: how recipes become its options, None if they do not. other_keys: keys of
    its other files; marks: what a file with certain keys is; both for messages of other dialects."""

    name: str
    about: str
    rows: tuple[Row, ...]
    compute: Callable[[Draft], None]
    scripts: tuple[str, ...] = ()
    other_scripts: Mapping[str, str] = empty_mapping()
    needless: Mapping[str, str] = empty_mapping()
    verb: str = "train"
    config: str = ""
    flat_config: bool = False
    tables: tuple[FileTable, ...] = ()
    expand: Callable[[Sequence[str]], ParsedCommand | None] | None = None
    tools: tuple[Tool, ...] = ()
    accumulation: str = ""
    division: str = ""
    published_loss: float | None = None
    write: Writing | None = None
    other_keys: tuple[str, ...] = ()
    marks: Mapping[tuple[str, ...], str] = empty_mapping()

    def translate(self, arguments: Sequence[str], launched: Launched, *, ahead: bool = False) -> Translation:
        """Translates a foreign command line, with or without its launcher and script.

        Reads only the settings files that the command names: the launcher's, `config`, those of `tables`. ahead:
        translate a launcher of several processes as if they were running, and return the commands to type.

        Raises RecipeError with all problems, in terms of the foreign flags: E1016 unknown flags, E1017 values, E1018
        unsupported options, E1019 a launcher of several processes, with the command to type. Raises NothingToDo for a
        script of `needless`.
        """
        cleaned, notes = reading.drop_continuation_signs(arguments)
        command = (self.expand(cleaned) if self.expand else None) or launchers.strip_launcher(cleaned, self.scripts)
        if command.tool == "bash" and command.problems:
            raise RecipeError(f"the line of {self.name}", problems=command.problems)
        if command.script in self.needless:
            raise NothingToDo(f"{command.script}: nothing to do; {self.needless[command.script]}")
        if command.script in self.other_scripts:
            message = f"{command.script} {self.other_scripts[command.script]}"
            raise RecipeError(f"--as {self.name} reads commands of {self.scripts[0]}; {message}", code="E1018")
        command.refuse_other_trainers(self.name, self.scripts, self.config)
        lines: tuple[tuple[str, str], ...] = ()
        total = command.total_processes
        if ahead and launched.processes == 1 and isinstance(total, int) and total > 1:
            launched = replace(launched, processes=total)
            lines = tuple(command.lines(self.name))
        if not command.problems:
            command.check_processes(self.name, launched.processes)
        if command.mixed_precision:
            launched = Launched(launched.processes, command.mixed_precision, command.tool)
        parsed = reading.parse(command.arguments, {row.flag: row for row in self.rows})
        files, file_rows, old_names = self._apply_files(parsed)
        files |= {flag: file for flag, file in command.files.items() if flag in parsed.values}
        draft = _draft(
            (*self.rows, *file_rows), parsed, command, launched, [*notes, *command.notes(launched.processes)]
        )
        draft.files, draft.lines = files, parsed.lines
        draft.accumulation, draft.division = self.accumulation, self.division
        for flag, text in old_names:
            draft.note(flag, text)
        if command.script and command.script not in self.scripts:
            draft.note("", f"{command.script} is read as {self.scripts[0]}")
        if command.cpu:
            draft.set("run.device", "cpu")
            draft.origin["run.device"] = f"{command.tool} --cpu"
        _apply_rows(draft)
        self.compute(draft)
        for path, value in FOREIGN_DEFAULTS.items():
            if path not in draft.origin:
                draft.set(path, value)
        draft.raise_problems(self.name)
        settings = {"schema": 1, **draft.settings}
        return Translation(draft.verb or self.verb, settings, draft.origin, tuple(draft.notes), lines)

    def translate_tool(self, verb: str, arguments: Sequence[str]) -> tuple[list[str], tuple[Note, ...], dict[str, str]]:
        """Translates a command of one of `tools`. Returns the arguments of Mezzotint's command, notes, and the foreign
        flag of each option, setting and positional file name. Raises RecipeError E1018 for a command without a tool,
        and as `translate`."""
        tool = next((tool for tool in self.tools if tool.verb == verb), None)
        if tool is None:
            verbs = ", ".join(dict.fromkeys(["train", "cache", "check", "bench", *(tool.verb for tool in self.tools)]))
            raise RecipeError(f"--as {self.name} is for the commands {verbs}, not for {verb}", code="E1018")
        cleaned, notes = reading.drop_continuation_signs(arguments)
        command = launchers.strip_launcher(cleaned, tool.scripts)
        if command.script and command.script not in tool.scripts:
            message = f"reads commands of {tool.scripts[0]}, not of {command.script}"
            raise RecipeError(f"mezzotint {verb} --as {self.name} {message}", code="E1018")
        parsed = reading.parse(command.arguments, {row.flag: row for row in tool.rows})
        draft = _draft(tool.rows, parsed, command, Launched(), notes)
        _apply_rows(draft)
        translated = tool.build_arguments(draft)
        draft.raise_problems(self.name)
        flags = {ours: f"--{row.flag}" for row in tool.rows for ours in row.to}
        names = {name.strip(): f"--{flag}" for flag in tool.files for name in draft.text(flag).split(",")}
        return translated, tuple(draft.notes), {name: flag for name, flag in names.items() if name} | flags

    def write_recipe(self, recipe: Recipe, launched: Launched) -> WrittenRecipe:
        """The trainer's own command and files for a recipe. Raises RecipeError E1026 for a recipe that it cannot run,
        and for a dialect without `write`."""
        if self.write is None:
            raise RecipeError(f"recipes cannot be written for {self.name}; it is only read", code="E1026")
        return writing.write_recipe(self, self.write, recipe, launched)

    def _apply_files(self, parsed: Parsed) -> tuple[dict[str, str], list[Row], list[tuple[str, str]]]:
        """Adds the values of settings files to those of the command line. Returns the file of each key, the rows of
        `tables` by their flags, and (flag, sentence) for old names."""
        files: dict[str, str] = {}
        own = {row.flag: row for row in self.rows}
        if self.config and parsed.values.get(self.config):
            name = str(parsed.values[self.config])
            contents = setting_files.read(name, f"--{self.config}", own, flatten=self.flat_config)
            parsed.problems += contents.problems
            parsed.failed |= contents.failed - parsed.values.keys()
            if contents.is_unreadable:  # its options would be reported as missing, too
                raise RecipeError(f"the line of {self.name}", problems=parsed.problems)
            for flag, value in contents.values.items():
                if flag not in parsed.values:
                    parsed.values[flag] = value
                    files[flag] = setting_files.file_name(name)
            parsed.lines |= {flag: line for flag, line in contents.lines.items() if flag in files}
        old_names = _resolve_old_names(parsed, files, self.rows)
        rows = [row for table in self.tables for row in tables.read_table(table, parsed, files, own[table.flag])]
        return files, rows, old_names


def _draft(
    rows: Sequence[Row], parsed: Parsed, command: ParsedCommand, launched: Launched, notes: Sequence[tuple[str, str]]
) -> Draft:
    """The draft of a parsed command. notes: (flag, sentence)."""
    values = {row.flag: _value(parsed, row) for row in rows}
    nulls = frozenset(flag for flag, value in parsed.values.items() if value is None)
    named, script_arguments = frozenset(parsed.values), tuple(command.arguments)
    failed = frozenset(parsed.failed)
    draft = Draft({row.flag: row for row in rows}, values, named, launched, nulls, failed, line=script_arguments)
    draft.problems += [*command.problems, *parsed.problems]
    draft.notes += [Note(flag, text) for flag, text in (*notes, *parsed.notes)]
    return draft


def _apply_rows(draft: Draft) -> None:
    """Applies the rows that do not depend on others, and adds their notes and problems."""
    for row in draft.rows.values():
        condition, sentence = row.needs
        can_act = not condition or _is_met(draft, condition)
        if not can_act and draft.is_given(row.flag):
            draft.note(row.flag, sentence)
        if row.outcome == "mapped" and can_act:
            draft.apply(row.flag)
        elif row.outcome in ("without effect", "refused") and draft.values[row.flag] != row.default:
            (draft.refuse if row.outcome == "refused" else draft.note)(row.flag, row.about)
        elif row.outcome == "waits" and draft.values[row.flag] != row.default:
            draft.refuse_until(row.feature, row.flag)


def _is_met(draft: Draft, condition: str) -> bool:
    """condition: as in `Row.needs`."""
    flag, _, text = condition.partition("=")
    value = draft.values[flag]
    return str(value).lower() == text if text else bool(value)


def _resolve_old_names(parsed: Parsed, files: dict[str, str], rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Moves values of old names to the current names; the current name has priority."""
    old_names = []
    for row in rows:
        if not row.now or parsed.values.get(row.flag) is None:
            continue
        counts = parsed.values.get(row.now) is not None
        old_names.append((row.flag, f"is called {row.now} now{', which is given, too, and is used' * counts}"))
        if not counts:
            parsed.values[row.now] = parsed.values[row.flag]
            files |= {row.now: files[row.flag]} if row.flag in files else {}
    return old_names


def _value(parsed: Parsed, row: Row) -> Value:
    """The value of a flag; null in a file means the default."""
    value = parsed.values.get(row.flag)
    return parsed.under.get(row.flag, row.default) if value is None else value


def _map_value(row: Row, value: Value) -> Any:
    if not isinstance(value, tuple) and value in row.values:
        return row.values[value]
    return list(value) if isinstance(value, tuple) else value
