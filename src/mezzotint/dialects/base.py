"""What a dialect is: a table with one row for each option of a foreign trainer, and a function for what no single row
can say. `Dialect.translate` turns a foreign command line into a tree of our settings, the flag each of them comes from,
and a note for everything that is dropped or changed.

Past this point nothing knows which door was used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from mezzotint.dialects import _launchers, _reading
from mezzotint.dialects._reading import Form, Value
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
    """One sentence for the user about a flag that is not simply carried over. flag: without dashes."""

    flag: str
    text: str

    def __str__(self) -> str:
        return f"--{self.flag}: {self.text}" if self.flag else self.text


@dataclass(frozen=True, slots=True)
class Row:
    """One foreign option. flag: without dashes. default: what the foreign trainer takes when it is not given.

    mapped: its value goes to `to[0]`, through `values` where that has an entry. computed: the dialect's function reads
    it and decides `to`. without effect: the run is the same whatever it says, and `about` tells why. refused: it cannot
    be done, and `about` tells why. since: the version that brought it, "" for both.
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


@dataclass(slots=True)
class Draft:
    """A translation in the making. given: the value of every flag, defaults filled in; named: those that were written
    down. launched: precision and count of processes, the pasted launcher's words included."""

    given: Mapping[str, Value]
    named: frozenset[str]
    launched: Launched
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
        said = [flag for flag in flags if flag in self.named]
        self.origin[path] = f"--{said[0]}" if said else f"default of --{flags[0]}" if flags else "the dialect"

    def note(self, flag: str, text: str) -> None:
        """Tells the user of something that is dropped, changed or worth knowing."""
        self.notes.append(Note(flag, text))

    def refuse(self, flag: str, what: str, remedy: str = "", code: str = "E1018") -> None:
        """Something that cannot be done; told together with all others, unless this flag has its problem already."""
        if any(problem.where == f"--{flag}" for problem in self.problems):
            return
        self.problems.append(Problem(f"--{flag}", what, remedy, code))

    def whole(self, flag: str) -> int:
        """The value of a flag that is a whole number."""
        value = self.given[flag]
        assert isinstance(value, int), flag
        return value

    def number(self, flag: str) -> float:
        """The value of a flag that is a number."""
        value = self.given[flag]
        assert isinstance(value, (int, float)), flag
        return float(value)

    def text(self, flag: str) -> str:
        """The value of a flag that is a text, "" when it has none."""
        value = self.given[flag]
        assert value is None or isinstance(value, str), flag
        return value or ""


@dataclass(frozen=True, slots=True)
class Translation:
    """verb: what the foreign line does here. settings: a recipe as a tree. origin: recipe path → the flag that it comes
    from. notes: what is not simply carried over."""

    verb: str
    settings: Mapping[str, Any]
    origin: Mapping[str, str]
    notes: tuple[Note, ...]


@dataclass(frozen=True, slots=True)
class Dialect:
    """A foreign trainer's recipes. name: as in `--as NAME`. scripts: the files that start it. strangers: scripts of the
    same project that this dialect does not speak for, with what they do. compute: decides what needs more than one
    flag, and adds notes."""

    name: str
    about: str
    rows: tuple[Row, ...]
    compute: Callable[[Draft], None]
    scripts: tuple[str, ...] = ()
    strangers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    verb: str = "train"

    def translate(self, arguments: Sequence[str], launched: Launched) -> Translation:
        """Translates a foreign command line, its launcher and script included or not.

        Reads no file but a launcher's configuration that the line names. Raises RecipeError with every problem in the
        user's own words: E1016 unknown flags, E1017 values, E1018 what cannot be done, E1019 a launcher of several
        processes, with the line to type.
        """
        swept, notes = _reading.without_signs(arguments)
        pasted = _launchers.strip(swept, self.scripts)
        self._knows(pasted.script)
        if not pasted.problems:
            pasted.insist(self.name, launched.processes)
        specs = {row.flag: _reading.Spec(row.flag, row.form, row.choices, row.required) for row in self.rows}
        parsed = _reading.parse(pasted.words, specs)
        given = {row.flag: parsed.given.get(row.flag, row.default) for row in self.rows}
        precision = pasted.mixed_precision or launched.mixed_precision
        launcher = pasted.tool if pasted.mixed_precision else launched.launcher
        draft = Draft(given, frozenset(parsed.given), Launched(launched.processes, precision, launcher))
        draft.problems += [*pasted.problems, *parsed.problems]
        draft.notes += [Note(flag, text) for flag, text in (*notes, *pasted.notes(launched.processes), *parsed.notes)]
        if pasted.script and pasted.script not in self.scripts:
            draft.note("", f"{pasted.script} is taken for {self.scripts[0]}")
        if pasted.cpu:
            draft.set("run.device", "cpu")
            draft.origin["run.device"] = f"{pasted.tool} --cpu"
        self._rows_into(draft)
        self.compute(draft)
        if draft.problems:
            raise RecipeError(f"the line of {self.name}", problems=tuple(dict.fromkeys(draft.problems)))
        return Translation(self.verb, {"schema": 1, **draft.settings}, draft.origin, tuple(draft.notes))

    def _knows(self, script: str) -> None:
        if script in self.strangers:
            raise RecipeError(
                f"--as {self.name} reads the line of {self.scripts[0]}; {script} {self.strangers[script]}", code="E1018"
            )

    def _rows_into(self, draft: Draft) -> None:
        """What single rows decide."""
        for row in self.rows:
            value = draft.given[row.flag]
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


def _mapped(row: Row, value: Value) -> Any:
    if isinstance(value, str) and value in row.values:
        return row.values[value]
    return list(value) if isinstance(value, tuple) else value
