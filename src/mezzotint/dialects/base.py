"""What a dialect is: a table with one row for each option of a foreign trainer, and a function for what no single row
can say. `Dialect.translate` turns a foreign command line into a tree of our settings, the flag each of them comes from,
and a note for everything that is dropped or changed.

Past this point nothing knows which door was used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from mezzotint.dialects.shared import launchers, reading, setting_files
from mezzotint.dialects.shared.launchers import ParsedCommand
from mezzotint.dialects.shared.reading import Form, Parsed, Spec, Value
from mezzotint.errors import Problem, RecipeError

Outcome = Literal["mapped", "computed", "without effect", "refused"]


@dataclass(frozen=True, slots=True)
class Launched:
    """What is known of the processes. processes: how many there are, or will be. mixed_precision: what the launcher
    hands over ("no", "fp16", "bf16"), None when it says nothing. launcher: its name for messages."""

    processes: int = 1
    mixed_precision: str | None = None
    launcher: str = "none"


@dataclass(frozen=True, slots=True)
class Note:
    """One sentence for the user about a flag that is not simply carried over. flag: without dashes. file: where it
    stands when that is not the line."""

    flag: str
    text: str
    file: str = ""

    def __str__(self) -> str:
        return f"{_called(self.flag, self.file)}: {self.text}" if self.flag else self.text


@dataclass(frozen=True, slots=True)
class Row:
    """One foreign option. flag: without dashes. default: what the foreign trainer takes when it is not given.

    mapped: its value goes to `to[0]`, through `values` where that has an entry. computed: the dialect's function reads
    it and decides `to`. without effect: the run is the same whatever it says, and `about` tells why. refused: it cannot
    be done, and `about` tells why. since: the version that brought it, "" for both. now: the flag that an old spelling
    stands for. from_json, may_be_empty: see `reading.Spec`.
    """

    flag: str
    form: Form
    default: Value
    outcome: Outcome
    to: tuple[str, ...] = ()
    about: str = ""
    choices: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    since: str = ""
    required: bool = False
    now: str = ""
    from_json: Callable[[Any], Value] | None = None
    may_be_empty: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """What may stand in a JSON file that a flag names. flag: that flag; when its default is a file that is not there,
    `shipped` counts. prefix: before the rows' names, to tell them from flags. rows: a dot in a name is a level of the
    file. shipped: values of the file that comes with the trainer, by name without prefix."""

    flag: str
    prefix: str
    rows: tuple[Row, ...]
    shipped: Mapping[str, Value] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(slots=True)
class Draft:
    """A translation in the making. values: the value of every flag, defaults filled in; named: those that were written
    down. nulls: those of them that a file leaves to their default. launched: precision and count of processes, the
    pasted launcher's words included. files: by flag or key, the
    file it stands in when that is not the line. line: the words of the line, without launcher. verb: what the line does
    here when it is not what its dialect's lines usually do. formerly: recipe path → what an earlier Mezzotint made of
    the same line; a run that began so keeps it."""

    values: Mapping[str, Value]
    named: frozenset[str]
    launched: Launched
    nulls: frozenset[str] = frozenset()
    files: Mapping[str, str] = field(default_factory=dict)
    line: tuple[str, ...] = ()
    verb: str = ""
    formerly: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def set(self, path: str, value: Any, *flags: str) -> None:
        """Puts a value at a recipe path. flags: where it comes from, the most telling first."""
        here = self.settings
        *sections, last = path.split(".")
        for section in sections:
            here = here.setdefault(section, {})
        here[last] = value
        said = [flag for flag in flags if self.says(flag)] or [flag for flag in flags if flag in self.named]
        default = f"default of {self.called(flags[0])}" if flags else "the dialect"
        self.origin[path] = self.called(said[0]) if said else default

    def says(self, flag: str) -> bool:
        """Whether somebody has written a value for a flag, on the line or in a file."""
        return flag in self.named and flag not in self.nulls

    def called(self, flag: str) -> str:
        """How a message names a flag: `--flag`, or `key in train.json`."""
        return _called(flag, self.files.get(flag, ""))

    def note(self, flag: str, text: str) -> None:
        """Tells the user of something that is dropped, changed or worth knowing."""
        self.notes.append(Note(flag, text, self.files.get(flag, "")))

    def refuse(self, flag: str, what: str, remedy: str = "", code: str = "E1018") -> None:
        """Something that cannot be done; told together with all others, unless this flag has its problem already."""
        if any(problem.where == self.called(flag) for problem in self.problems):
            return
        self.problems.append(Problem(self.called(flag), what, remedy, code))

    def whole(self, flag: str) -> int:
        """The value of a flag that is a whole number."""
        value = self.values[flag]
        assert isinstance(value, int), flag
        return value

    def number(self, flag: str) -> float:
        """The value of a flag that is a number."""
        value = self.values[flag]
        assert isinstance(value, (int, float)), flag
        return float(value)

    def above_zero(self, flag: str) -> bool:
        """Whether a whole number is above 0; refuses the flag when it is not."""
        if self.whole(flag) > 0:
            return True
        self.refuse(flag, f"must be above 0, got {self.whole(flag)}", code="E1017")
        return False

    def text(self, flag: str) -> str:
        """The value of a flag that is a text, "" when it has none."""
        value = self.values[flag]
        assert value is None or isinstance(value, str), flag
        return value or ""


@dataclass(frozen=True, slots=True)
class Translation:
    """verb: what the foreign line does here. settings: a recipe as a tree. origin: recipe path → the flag that it comes
    from. notes: what is not simply carried over. lines: (server, line to type) when the line starts several processes
    that are not there yet; the server is "" when there is one. formerly: see `Draft`."""

    verb: str
    settings: Mapping[str, Any]
    origin: Mapping[str, str]
    notes: tuple[Note, ...]
    lines: tuple[tuple[str, str], ...] = ()
    formerly: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Tool:
    """Another program of the trainer's project that one of our verbs stands for. verb: ours. scripts: the files that
    start it. words: what stands behind our verb to do the same. flags: by our switch or setting, the flag that says it
    there."""

    verb: str
    rows: tuple[Row, ...]
    words: Callable[[Draft], list[str]]
    scripts: tuple[str, ...]
    flags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Dialect:
    """A foreign trainer's recipes. name: as in `--as NAME`. scripts: the files that start it. other_scripts: scripts of the
    same project that this dialect does not speak for, with what they do. compute: decides what needs more than one
    flag, and adds notes. config: the flag that names a JSON file whose keys are flags; the line counts before it.
    tables: what stands in other files that flags name. expand: reads a line that begins with a shell script of the
    trainer's. tools: other programs of its project."""

    name: str
    about: str
    rows: tuple[Row, ...]
    compute: Callable[[Draft], None]
    scripts: tuple[str, ...] = ()
    other_scripts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    verb: str = "train"
    config: str = ""
    tables: tuple[Table, ...] = ()
    expand: Callable[[Sequence[str]], ParsedCommand | None] | None = None
    tools: tuple[Tool, ...] = ()

    def translate(self, arguments: Sequence[str], launched: Launched, *, ahead: bool = False) -> Translation:
        """Translates a foreign command line, its launcher and script included or not.

        Reads no files but those of settings that the line names: the launcher's, `config`, those of `tables`. Raises
        RecipeError with every problem in the user's own words: E1016 unknown flags, E1017 values, E1018 what cannot be
        done, E1019 a launcher of several processes, with the line to type. ahead: read such a line as if its processes
        were there, and tell the lines to type.
        """
        cleaned, notes = reading.without_signs(arguments)
        command = (self.expand(cleaned) if self.expand else None) or launchers.strip(cleaned, self.scripts)
        if command.tool == "bash" and command.problems:
            raise RecipeError(f"the line of {self.name}", problems=command.problems)
        self._knows(command.script)
        lines: tuple[tuple[str, str], ...] = ()
        if (
            ahead
            and launched.processes == 1
            and isinstance(command.total_processes, int)
            and command.total_processes > 1
        ):
            launched = replace(launched, processes=command.total_processes)
            lines = tuple(command.lines(self.name))
        if not command.problems:
            command.insist(self.name, launched.processes)
        parsed = reading.parse(command.words, {row.flag: _spec(row) for row in self.rows})
        files, renamed = self._lay_files(parsed)
        every = (
            *self.rows,
            *(replace(row, flag=table.prefix + row.flag) for table in self.tables for row in table.rows),
        )
        values = {row.flag: _given(parsed, row) for row in every}
        precision = command.mixed_precision or launched.mixed_precision
        launcher = command.tool if command.mixed_precision else launched.launcher
        place = Launched(launched.processes, precision, launcher)
        nulls = frozenset(flag for flag, value in parsed.values.items() if value is None)
        draft = Draft(values, frozenset(parsed.values), place, nulls, files, tuple(command.words))
        draft.problems += [*command.problems, *parsed.problems]
        draft.notes += [Note(flag, text) for flag, text in (*notes, *command.notes(launched.processes), *parsed.notes)]
        for flag, text in renamed:
            draft.note(flag, text)
        if command.script and command.script not in self.scripts:
            draft.note("", f"{command.script} is taken for {self.scripts[0]}")
        if command.cpu:
            draft.set("run.device", "cpu")
            draft.origin["run.device"] = f"{command.tool} --cpu"
        _rows_into(draft, every)
        self.compute(draft)
        if draft.problems:
            raise RecipeError(f"the line of {self.name}", problems=tuple(dict.fromkeys(draft.problems)))
        settings = {"schema": 1, **draft.settings}
        return Translation(draft.verb or self.verb, settings, draft.origin, tuple(draft.notes), lines, draft.formerly)

    def flags_of(self, verb: str) -> dict[str, str]:
        """Their flags by our switches and settings, of the tool that one of our verbs stands for."""
        return {ours: f"--{flag}" for tool in self.tools if tool.verb == verb for ours, flag in tool.flags.items()}

    def words(self, verb: str, arguments: Sequence[str]) -> tuple[list[str], tuple[Note, ...]]:
        """A foreign line of one of `tools` as the words behind our verb, and notes. Raises RecipeError E1018 for a verb
        that no tool stands for, and as `translate`."""
        tool = next((tool for tool in self.tools if tool.verb == verb), None)
        if tool is None:
            known = ", ".join(dict.fromkeys(["train", "cache", "check", "bench", *(tool.verb for tool in self.tools)]))
            raise RecipeError(f"--as {self.name} is for the verbs {known}, not for {verb}", code="E1018")
        cleaned, notes = reading.without_signs(arguments)
        command = launchers.strip(cleaned, tool.scripts)
        if command.script and command.script not in tool.scripts:
            raise RecipeError(
                f"mezzotint {verb} --as {self.name} reads the line of {tool.scripts[0]}, not of {command.script}",
                code="E1018",
            )
        parsed = reading.parse(command.words, {row.flag: _spec(row) for row in tool.rows})
        values = {row.flag: _given(parsed, row) for row in tool.rows}
        draft = Draft(values, frozenset(parsed.values), Launched())
        draft.problems += [*command.problems, *parsed.problems]
        draft.notes += [Note(flag, text) for flag, text in (*notes, *parsed.notes)]
        _rows_into(draft, tool.rows)
        words = tool.words(draft)
        if draft.problems:
            raise RecipeError(f"the line of {self.name}", problems=tuple(dict.fromkeys(draft.problems)))
        return words, tuple(draft.notes)

    def _knows(self, script: str) -> None:
        if script in self.other_scripts:
            raise RecipeError(
                f"--as {self.name} reads the line of {self.scripts[0]}; {script} {self.other_scripts[script]}",
                code="E1018",
            )

    def _lay_files(self, parsed: Parsed) -> tuple[dict[str, str], list[tuple[str, str]]]:
        """Lays under the line what its files say. Returns the file of each key that stands in one, and (flag, sentence)
        for old spellings."""
        files: dict[str, str] = {}
        if self.config and parsed.values.get(self.config):
            name = str(parsed.values[self.config])
            contents = setting_files.read(name, f"--{self.config}", {row.flag: _spec(row) for row in self.rows})
            parsed.problems += contents.problems
            for flag, value in contents.values.items():
                if flag not in parsed.values:
                    parsed.values[flag] = value
                    files[flag] = setting_files.short(name)
        renamed = _renamed(parsed, files, self.rows)
        for table in self.tables:
            _lay_table(table, parsed, files, {row.flag: row for row in self.rows}[table.flag])
        return files, renamed


def run_name(folder: str) -> str:
    """A run's name out of a folder's."""
    last = re.split(r"[/\\]", folder.rstrip("/\\"))[-1]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).lstrip("._-")[:100] or "run"


def _rows_into(draft: Draft, rows: Sequence[Row]) -> None:
    """What single rows decide."""
    for row in rows:
        value = draft.values[row.flag]
        match row.outcome:
            case "mapped":
                draft.set(row.to[0], _mapped(row, value), row.flag)
            case "without effect":
                if value != row.default:
                    draft.note(row.flag, row.about)
            case "refused":
                if value != row.default:
                    draft.refuse(row.flag, row.about)
            case "computed":
                pass
            case _:
                raise ValueError(f"no row ends as {row.outcome!r}")


def _lay_table(table: Table, parsed: Parsed, files: dict[str, str], row: Row) -> None:
    """What the file of a table says, or, when it is a default that is not there, what ships with the trainer."""
    name = parsed.values.get(table.flag) or row.default
    if name is None:
        return
    is_absent = parsed.values.get(table.flag) is None and not setting_files.is_there(str(name))
    for one in table.rows:
        files[table.prefix + one.flag] = f"the {name} that ships" if is_absent else setting_files.short(str(name))
    if is_absent:
        parsed.under |= {table.prefix + key: value for key, value in table.shipped.items()}
        return
    called = _called(table.flag, files.get(table.flag, ""))
    contents = setting_files.read(str(name), called, {one.flag: _spec(one) for one in table.rows})
    parsed.problems += contents.problems
    parsed.values |= {table.prefix + key: value for key, value in contents.values.items()}


def _renamed(parsed: Parsed, files: dict[str, str], rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Takes old spellings for what they are called now; the new one counts before the old."""
    renamed = []
    for row in rows:
        if not row.now or parsed.values.get(row.flag) is None:
            continue
        if parsed.values.get(row.now) is not None:
            renamed.append((row.flag, f"is called {row.now} now, which is given and counts"))
            continue
        renamed.append((row.flag, f"is called {row.now} now"))
        parsed.values[row.now] = parsed.values[row.flag]
        if row.flag in files:
            files[row.now] = files[row.flag]
    return renamed


def _given(parsed: Parsed, row: Row) -> Value:
    """The value of a flag: null in a file is its default."""
    value = parsed.values.get(row.flag)
    return parsed.under.get(row.flag, row.default) if value is None else value


def _spec(row: Row) -> Spec:
    return Spec(row.flag, row.form, row.choices, row.required, row.from_json, row.may_be_empty)


def _called(flag: str, file: str) -> str:
    return f"{flag.rpartition(':')[2]} in {file}" if file else f"--{flag}"


def _mapped(row: Row, value: Value) -> Any:
    if isinstance(value, str) and value in row.values:
        return row.values[value]
    return list(value) if isinstance(value, tuple) else value
