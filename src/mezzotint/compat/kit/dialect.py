"""What a dialect is: a table with one row for each option of a foreign trainer, and a function for what no single row
can say. `Dialect.translate` turns a foreign command line into a tree of our settings, the flag each of them comes from,
and a note for everything that is dropped or changed.

Past this point nothing knows which door was used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from mezzotint.compat.kit import launchers, reading, setting_files
from mezzotint.compat.kit.launchers import ParsedCommand
from mezzotint.compat.kit.reading import Form, Parsed, Spec, Value
from mezzotint.errors import Problem, RecipeError
from mezzotint.settings.reading.translation import Launched, Note, Translation, flag_name

Outcome = Literal["mapped", "computed", "without effect", "refused"]


def empty_mapping() -> Any:
    """The default of a field that is a mapping."""
    return field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Spec):
    """One foreign option. default: what the foreign trainer takes when it is not given.

    mapped: its value goes to `to[0]` by `Draft.apply`, through `values` where that has an entry. computed: the dialect's
    function reads it and decides `to`, by `Draft.apply` where the row says how. without effect: the run is the same
    whatever it says, and `about` tells why. refused: it cannot be done, and `about` tells why. since: the version that
    brought it, "" for both. now: the flag that an old spelling stands for. Others: see `Spec`. needs: (condition,
    sentence): a flag that has to be on, or FLAG=TEXT; else a mapped row is not laid, and the sentence is said when this
    flag is written.

    What `Draft.apply` does: least, most: bounds of the value; above: it has to be above this. optional: nothing is laid
    when there is no value, or a switch is off. unit: "steps" counts micro-batches and is laid as optimizer steps,
    "processes" or "cards" is the batch of each of them and is laid as the batch of all. fixed: settings that are laid
    with it and are the same whatever it says.
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


_FORMS: Mapping[type, Form] = {
    str: "text", list: "texts", int: "whole", float: "number", tuple: "numbers", bool: "switch",
}  # fmt: skip


def row(
    flag: str, default: Any, to: str = "", about: str = "", outcome: Outcome = "computed", *,
    on: Any = True, off: Any = False, **more: Any,
) -> Row:  # fmt: skip
    """The row of an option. default: its value there, or the type of its values where it has none (`list` of texts,
    `tuple` of numbers). to: recipe paths with blanks between. on, off: what a switch is laid as."""
    kind = default if isinstance(default, type) else type(default)
    more = {"form": _FORMS[kind], "values": {True: on, False: off} if kind is bool else {}, **more}
    return Row(flag=flag, default=None if isinstance(default, type) else default, to=tuple(to.split()), about=about,
               outcome=outcome, **more)  # fmt: skip


def mapped(flag: str, default: Any, to: str, about: str, **more: Any) -> Row:
    """The row of an option whose value goes to a recipe path."""
    return row(flag, default, to, about, "mapped", **more)


def ignored(flag: str, default: Any, about: str, **more: Any) -> Row:
    """The row of an option without effect here. about: why."""
    return row(flag, default, "", about, "without effect", **more)


def refused(flag: str, default: Any, about: str, **more: Any) -> Row:
    """The row of an option that cannot be done. about: why."""
    return row(flag, default, "", about, "refused", **more)


@dataclass(frozen=True, slots=True)
class FileTable:
    """What may stand in a JSON file that a flag names. flag: that flag; when its default is a file that is not there,
    `shipped` counts. prefix: before the rows' names, to tell them from flags. rows: a dot in a name is a level of the
    file. shipped: values of the file that comes with the trainer, by name without prefix."""

    flag: str
    prefix: str
    rows: tuple[Row, ...]
    shipped: Mapping[str, Value] = empty_mapping()


FOREIGN_DEFAULTS = MappingProxyType({"data.decode": "full", "run.tf32": False})
"""What the other trainers do unless a flag says otherwise, where our own defaults differ."""


@dataclass(slots=True)
class Draft:
    """A translation in the making. rows: those of the trainer by flag; values: the value of every flag, defaults filled
    in; named: those that were written down. nulls: those of them that a file leaves to their default. launched:
    precision and count of processes, the pasted launcher's words included. files: by flag or key, the file it stands in
    when that is not the line. line: the words of the line, without launcher. verb: what the line does here when it is
    not what its dialect's lines usually do. accumulation, division: see `Dialect`."""

    rows: Mapping[str, Row]
    values: Mapping[str, Value]
    named: frozenset[str]
    launched: Launched
    nulls: frozenset[str] = frozenset()
    files: Mapping[str, str] = field(default_factory=dict)
    line: tuple[str, ...] = ()
    verb: str = ""
    accumulation: str = ""
    division: str = ""
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
        written = [flag for flag in flags if self.is_given(flag)] or [flag for flag in flags if flag in self.named]
        default = f"default of {self.display_name(flags[0])}" if flags else "the dialect"
        self.origin[path] = self.display_name(written[0]) if written else default

    def set_all(self, values: Mapping[str, Any], *flags: str) -> None:
        """Puts several values by recipe path, which come from the same flags."""
        for path, value in values.items():
            self.set(path, value, *flags)

    def apply(self, *flags: str) -> None:
        """Puts what flags say into the recipe as their rows have it; what they cannot be is refused."""
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
        """Whether the value of a flag is within its bounds; refuses the flag when it is not."""
        row, value = self.rows[flag], self.values[flag]
        what = ""
        if isinstance(value, (int, float)):
            if row.least is not None and value < row.least:
                what = f"must be {row.least} or more, got {value}"
            elif row.above is not None and value <= row.above:
                what = f"must be above {row.above}, got {value:g}"
            elif row.most is not None and value > row.most:
                what = f"must be {row.most} or less, got {value:g}"
        if what:
            self.refuse(flag, what, code="E1017")
        return not what

    def set_batch(self, flag: str, each: int, unit: str) -> None:
        """The batch of all processes, of which each has `each`. unit: what the trainer calls them."""
        processes = self.launched.processes
        self.set("data.batch_size", each * processes, flag)
        if processes > 1:
            self.note(flag, f"{each} on each of {processes} {unit}: a batch of {each * processes}")

    def to_steps(self, batches: int) -> int:
        """A number of micro-batches in optimizer steps, rounded up."""
        return -(-batches // max(1, self.integer(self.accumulation))) if self.accumulation else batches

    def steps_of(self, flag: str) -> int:
        """The micro-batches that a flag counts, in optimizer steps; says so where the dialect has words for it."""
        count = max(0, self.integer(flag))
        steps = self.to_steps(count)
        if self.division and count and self.is_given(flag) and self.integer(self.accumulation) > 1:
            self.note(flag, self.division.format(count=count, steps=steps, times=self.integer(self.accumulation)))
        return steps

    def is_given(self, flag: str) -> bool:
        """Whether somebody has written a value for a flag, on the line or in a file."""
        return flag in self.named and flag not in self.nulls

    def display_name(self, flag: str) -> str:
        """How a message names a flag: `--flag`, or `key in train.json`."""
        return flag_name(flag, self.files.get(flag, ""))

    def note(self, flag: str, text: str) -> None:
        """Tells the user of something that is dropped, changed or worth knowing."""
        self.notes.append(Note(flag, text, self.files.get(flag, "")))

    def refuse(self, flag: str, what: str, remedy: str = "", code: str = "E1018") -> None:
        """Something that cannot be done; told together with all others, unless this flag has its problem already."""
        if any(problem.where == self.display_name(flag) for problem in self.problems):
            return
        self.problems.append(Problem(self.display_name(flag), what, remedy, code))

    def raise_problems(self, dialect: str) -> None:
        """Raises RecipeError with everything that is refused."""
        if self.problems:
            raise RecipeError(f"the line of {dialect}", problems=tuple(dict.fromkeys(self.problems)))

    def integer(self, flag: str) -> int:
        """The value of a flag that is a whole number."""
        value = self.values[flag]
        assert isinstance(value, int), flag
        return value

    def number(self, flag: str) -> float:
        """The value of a flag that is a number."""
        value = self.values[flag]
        assert isinstance(value, (int, float)), flag
        return float(value)

    def text(self, flag: str) -> str:
        """The value of a flag that is a text, "" when it has none."""
        value = self.values[flag]
        assert value is None or isinstance(value, str), flag
        return value or ""


@dataclass(frozen=True, slots=True)
class Tool:
    """Another program of the trainer's project that one of our verbs stands for. verb: ours. scripts: the files that
    start it. words: what stands behind our verb to do the same. `to` of its rows: our switches and settings. files: the
    flags whose values are the names that stand behind our verb without a switch."""

    verb: str
    rows: tuple[Row, ...]
    words: Callable[[Draft], list[str]]
    scripts: tuple[str, ...]
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A foreign trainer's recipes. name: as in `--as NAME`. scripts: the files that start it. other_scripts: those of
    the same project that this dialect does not speak for, with what they do. compute: decides what needs more than one
    flag, and adds notes. accumulation: the flag by which counts of micro-batches become counts of optimizer steps, ""
    when they are steps already; division: the note of that, with {count}, {steps} and {times}. config: the flag that
    names a JSON file whose keys are flags; the line counts before it. tables: what stands in other files that flags
    name. expand: reads a line that begins with a shell script of the trainer's. tools: other programs of its
    project. published_loss: that a published benchmark asks for after 101 steps."""

    name: str
    about: str
    rows: tuple[Row, ...]
    compute: Callable[[Draft], None]
    scripts: tuple[str, ...] = ()
    other_scripts: Mapping[str, str] = empty_mapping()
    verb: str = "train"
    config: str = ""
    tables: tuple[FileTable, ...] = ()
    expand: Callable[[Sequence[str]], ParsedCommand | None] | None = None
    tools: tuple[Tool, ...] = ()
    accumulation: str = ""
    division: str = ""
    published_loss: float | None = None

    def translate(self, arguments: Sequence[str], launched: Launched, *, ahead: bool = False) -> Translation:
        """Translates a foreign command line, its launcher and script included or not.

        Reads no files but those of settings that the line names: the launcher's, `config`, those of `tables`. Raises
        RecipeError with every problem in the user's own words: E1016 unknown flags, E1017 values, E1018 what cannot be
        done, E1019 a launcher of several processes, with the line to type. ahead: read such a line as if its processes
        were there, and tell the lines to type.
        """
        cleaned, notes = reading.drop_continuation_signs(arguments)
        command = (self.expand(cleaned) if self.expand else None) or launchers.strip_launcher(cleaned, self.scripts)
        if command.tool == "bash" and command.problems:
            raise RecipeError(f"the line of {self.name}", problems=command.problems)
        if command.script in self.other_scripts:
            what = f"{command.script} {self.other_scripts[command.script]}"
            raise RecipeError(f"--as {self.name} reads the line of {self.scripts[0]}; {what}", code="E1018")
        lines: tuple[tuple[str, str], ...] = ()
        total = command.total_processes
        if ahead and launched.processes == 1 and isinstance(total, int) and total > 1:
            launched = replace(launched, processes=total)
            lines = tuple(command.lines(self.name))
        if not command.problems:
            command.check_processes(self.name, launched.processes)
        if command.mixed_precision:
            launched = Launched(launched.processes, command.mixed_precision, command.tool)
        parsed = reading.parse(command.words, {row.flag: row for row in self.rows})
        files, old_names = self._apply_files(parsed)
        file_rows = (replace(row, flag=table.prefix + row.flag) for table in self.tables for row in table.rows)
        draft = _draft(
            (*self.rows, *file_rows), parsed, command, launched, [*notes, *command.notes(launched.processes)]
        )
        draft.files, draft.accumulation, draft.division = files, self.accumulation, self.division
        for flag, text in old_names:
            draft.note(flag, text)
        if command.script and command.script not in self.scripts:
            draft.note("", f"{command.script} is taken for {self.scripts[0]}")
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

    def words(self, verb: str, arguments: Sequence[str]) -> tuple[list[str], tuple[Note, ...], dict[str, str]]:
        """A foreign line of one of `tools` as the words behind our verb; notes; and the line's flags by our switches
        and settings, and by the names of files that stand without one. Raises RecipeError E1018 for a verb that no tool
        stands for, and as `translate`."""
        tool = next((tool for tool in self.tools if tool.verb == verb), None)
        if tool is None:
            known = ", ".join(dict.fromkeys(["train", "cache", "check", "bench", *(tool.verb for tool in self.tools)]))
            raise RecipeError(f"--as {self.name} is for the verbs {known}, not for {verb}", code="E1018")
        cleaned, notes = reading.drop_continuation_signs(arguments)
        command = launchers.strip_launcher(cleaned, tool.scripts)
        if command.script and command.script not in tool.scripts:
            what = f"reads the line of {tool.scripts[0]}, not of {command.script}"
            raise RecipeError(f"mezzotint {verb} --as {self.name} {what}", code="E1018")
        parsed = reading.parse(command.words, {row.flag: row for row in tool.rows})
        draft = _draft(tool.rows, parsed, command, Launched(), notes)
        _apply_rows(draft)
        words = tool.words(draft)
        draft.raise_problems(self.name)
        flags = {ours: f"--{row.flag}" for row in tool.rows for ours in row.to}
        names = {name.strip(): f"--{flag}" for flag in tool.files for name in draft.text(flag).split(",")}
        return words, tuple(draft.notes), {name: flag for name, flag in names.items() if name} | flags

    def _apply_files(self, parsed: Parsed) -> tuple[dict[str, str], list[tuple[str, str]]]:
        """Lays under the line what its files say. Returns the file of each key that stands in one, and (flag, sentence)
        for old spellings."""
        files: dict[str, str] = {}
        if self.config and parsed.values.get(self.config):
            name = str(parsed.values[self.config])
            contents = setting_files.read(name, f"--{self.config}", {row.flag: row for row in self.rows})
            parsed.problems += contents.problems
            for flag, value in contents.values.items():
                if flag not in parsed.values:
                    parsed.values[flag] = value
                    files[flag] = setting_files.file_name(name)
        old_names = _resolve_old_names(parsed, files, self.rows)
        for table in self.tables:
            _apply_table(table, parsed, files, {row.flag: row for row in self.rows}[table.flag])
        return files, old_names


def bucket_step(side: int) -> int:
    """The largest step of bucket sizes that divides a side."""
    return next((step for step in (64, 32, 16) if side % step == 0), 8)


def explain_divisor(size: int, processes: int) -> tuple[str, str]:
    """(what is wrong, remedy) with a number of sharing processes that does not divide all of them."""
    fitting = ", ".join(str(n) for n in range(1, processes + 1) if processes % n == 0)
    return f"is {size}, which does not divide the {processes} processes", f"write one of {fitting}"


def safe_name(text: str) -> str:
    """A run's name out of any text."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:100] or "run"


def run_name(folder: str) -> str:
    """A run's name out of a folder's."""
    return safe_name(setting_files.file_name(folder.rstrip("/\\")))


def _draft(
    rows: Sequence[Row], parsed: Parsed, command: ParsedCommand, launched: Launched, notes: Sequence[tuple[str, str]]
) -> Draft:
    """A draft of what a line says. notes: (flag, sentence) of what stood around its words."""
    values = {row.flag: _value(parsed, row) for row in rows}
    nulls = frozenset(flag for flag, value in parsed.values.items() if value is None)
    named, words = frozenset(parsed.values), tuple(command.words)
    draft = Draft({row.flag: row for row in rows}, values, named, launched, nulls, line=words)
    draft.problems += [*command.problems, *parsed.problems]
    draft.notes += [Note(flag, text) for flag, text in (*notes, *parsed.notes)]
    return draft


def _apply_rows(draft: Draft) -> None:
    """What single rows decide."""
    for row in draft.rows.values():
        condition, sentence = row.needs
        can_act = not condition or _is_met(draft, condition)
        if not can_act and draft.is_given(row.flag):
            draft.note(row.flag, sentence)
        if row.outcome == "mapped" and can_act:
            draft.apply(row.flag)
        elif row.outcome in ("without effect", "refused") and draft.values[row.flag] != row.default:
            (draft.refuse if row.outcome == "refused" else draft.note)(row.flag, row.about)


def _is_met(draft: Draft, condition: str) -> bool:
    """condition: as in `Row.needs`."""
    flag, _, text = condition.partition("=")
    value = draft.values[flag]
    return str(value).lower() == text if text else bool(value)


def _apply_table(table: FileTable, parsed: Parsed, files: dict[str, str], row: Row) -> None:
    """What the file of a table says, or, when it is a default that is not there, what ships with the trainer."""
    name = parsed.values.get(table.flag) or row.default
    if name is None:
        return
    is_absent = parsed.values.get(table.flag) is None and not Path(str(name)).expanduser().is_file()
    for one in table.rows:
        files[table.prefix + one.flag] = f"the {name} that ships" if is_absent else setting_files.file_name(str(name))
    if is_absent:
        parsed.under |= {table.prefix + key: value for key, value in table.shipped.items()}
        return
    called = flag_name(table.flag, files.get(table.flag, ""))
    contents = setting_files.read(str(name), called, {one.flag: one for one in table.rows})
    parsed.problems += contents.problems
    parsed.values |= {table.prefix + key: value for key, value in contents.values.items()}


def _resolve_old_names(parsed: Parsed, files: dict[str, str], rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Takes old spellings for what they are called now; the new one counts before the old."""
    old_names = []
    for row in rows:
        if not row.now or parsed.values.get(row.flag) is None:
            continue
        counts = parsed.values.get(row.now) is not None
        old_names.append((row.flag, f"is called {row.now} now{', which is given and counts' * counts}"))
        if not counts:
            parsed.values[row.now] = parsed.values[row.flag]
            files |= {row.now: files[row.flag]} if row.flag in files else {}
    return old_names


def _value(parsed: Parsed, row: Row) -> Value:
    """The value of a flag: null in a file is its default."""
    value = parsed.values.get(row.flag)
    return parsed.under.get(row.flag, row.default) if value is None else value


def _map_value(row: Row, value: Value) -> Any:
    if not isinstance(value, tuple) and value in row.values:
        return row.values[value]
    return list(value) if isinstance(value, tuple) else value
