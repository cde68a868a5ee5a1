"""Parses another trainer's command line into values by flag, as its own parser does, but strictly: an unknown flag is
an error that names the nearest one, even if the original parser ignores it.

Accepted are `--a=b`, `--a = b`, `--a b`, several values after one flag, switches with or without True, False, 1 or 0,
and abbreviations that match only one flag. All problems are reported together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mezzotint.compat.kit import foreign
from mezzotint.errors import Problem, did_you_mean, find_closest

Form = Literal["text", "texts", "whole", "number", "numbers", "switch"]
Value = str | int | float | bool | tuple[str, ...] | tuple[float, ...] | None

_CONTINUATIONS = frozenset(("^", "`", "\\"))
_YES = frozenset(("true", "1"))
_NO = frozenset(("false", "0"))
_FLAG = re.compile(r"--?[A-Za-z]")
_VARIABLE = re.compile(r"\$\{?\w+\}?|%\w+%")


@dataclass(frozen=True, slots=True)
class Spec:
    """What the parser needs to know about a flag. flag: its name without dashes. choices: the accepted texts, () for
    any. from_json: converts a value of special structure in a JSON file; raises ValueError. may_be_empty: whether `""`
    is a valid value."""

    flag: str
    form: Form
    choices: tuple[str, ...] = ()
    required: bool = False
    from_json: Callable[[Any], Value] | None = None
    may_be_empty: bool = False


@dataclass(slots=True)
class Parsed:
    """values: the given values, by flag without dashes. lines: of those in a file. under: fallback values. failed:
    flags with an invalid value. is_unreadable: whether the file could not be read. notes: (flag, sentence)."""

    values: dict[str, Value] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    under: dict[str, Value] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    is_unreadable: bool = False
    notes: list[tuple[str, str]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def drop_continuation_signs(arguments: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """The arguments without line continuation characters (a single ^, backtick or backslash) that remain from pasting a
    command of another shell, and a note if there were any. An argument of only spaces is such a remainder, too: a
    backslash followed by a space. Backslashes within an argument stay: they are Windows paths."""
    remaining, dropped = [], []
    for argument in arguments:
        bare = argument.strip()
        if bare in _CONTINUATIONS or (argument and not bare):
            dropped.append(bare or "a space")
        else:
            remaining.append(argument)
    if not dropped:
        return remaining, []
    names = ", ".join(dict.fromkeys(dropped))
    return remaining, [("", f"{names}: a line continuation character left over from pasting is dropped")]


def parse(arguments: Sequence[str], specs: Mapping[str, Spec]) -> Parsed:
    """Parses arguments into values. Does not raise: `problems` has E1016 for unknown flags and stray values, E1017 for
    invalid values."""
    parsed = Parsed()
    rest = list(arguments)
    switch = ""
    while rest:
        word = rest.pop(0)
        if not _is_flag(word):
            remedy = "values follow their flag: --flag value, or --flag=value; quote a value with spaces"
            remedy = f"{switch} is a switch, which takes no value; leave {word[:60]} out" if switch else remedy
            parsed.problems.append(Problem(word[:60], "is not a flag", remedy, "E1016"))
            continue
        typed, sign, value = word.partition("=")
        if not sign and rest and rest[0] == "=" and len(rest) > 1 and not _is_flag(rest[1]):
            sign, value = rest.pop(0), rest.pop(0)
            parsed.notes.append((typed[2:], f"written {typed} = {value}, is read as {typed}={value}"))
        taken = [value] if sign else []
        spec = _find_spec(typed, specs, parsed)
        form = spec.form if spec is not None else "texts"
        most = 0 if sign or form == "switch" else len(rest) if form in ("texts", "numbers") else 1
        while rest and not _is_flag(rest[0]) and len(taken) < most:
            taken.append(rest.pop(0))
        if form == "switch" and not sign and rest and rest[0].lower() in _YES | _NO:
            taken.append(rest.pop(0))
        switch = typed if form == "switch" and not taken else ""
        if spec is not None:
            _store(spec, taken, parsed)
    refused = {problem.where for problem in parsed.problems}
    for spec in specs.values():
        if spec.required and spec.flag not in parsed.values and f"--{spec.flag}" not in refused:
            parsed.problems.append(Problem(f"--{spec.flag}", "is missing; the script needs it", "", "E1017"))
    return parsed


def _is_flag(word: str) -> bool:
    return bool(_FLAG.match(word))  # -1 and -0.5 are numbers


def _find_spec(typed: str, specs: Mapping[str, Spec], parsed: Parsed) -> Spec | None:
    """The flag that a word names, in full or by an unambiguous abbreviation."""
    name = typed[2:]
    if typed.startswith("--") and name in specs:
        return specs[name]
    theirs = foreign.suggest(name, specs, "--")
    if theirs:
        parsed.problems.append(Problem(typed, "unknown flag", theirs, "E1016"))
        return None
    fits = [flag for flag in specs if flag.startswith(name)] if typed.startswith("--") else []
    if len(fits) == 1:
        parsed.notes.append((fits[0], f"written {typed}"))
        return specs[fits[0]]
    if fits:
        shown = ", ".join(f"--{flag}" for flag in fits[:4]) + (", …" if len(fits) > 4 else "")
        parsed.problems.append(Problem(typed, f"may be {shown}", "write it out", "E1016"))
        return None
    near = find_closest(typed.lstrip("-").replace("-", "_"), specs)
    remedy = f"did you mean --{near}?" if near else "the script has no such flag"
    parsed.problems.append(Problem(typed, "unknown flag", remedy, "E1016"))
    return None


def _store(spec: Spec, taken: list[str], parsed: Parsed) -> None:
    value, problem = value_of(spec, taken)
    if problem:
        parsed.problems.append(Problem(f"--{spec.flag}", problem, "", "E1017"))
        parsed.failed.add(spec.flag)
        return
    if spec.flag in parsed.values:
        parsed.notes.append((spec.flag, f"given more than once; the last value is used: {format_value(value)}"))
    parsed.values[spec.flag] = value


def value_of(spec: Spec, taken: Sequence[str]) -> tuple[Value, str]:
    """The value of the words after a flag: (value, "") or (None, problem)."""
    if spec.form == "switch":
        word = taken[0].lower() if taken else "true"
        is_one = word in _YES | _NO
        return (word in _YES, "") if is_one else (None, f"must be True or False, got {format_value(taken[0])}")
    if not taken:
        return None, "has no value"
    for text in taken:
        if _VARIABLE.fullmatch(text):
            return None, f"{text} is a variable that the shell has not replaced; write its value"
    if spec.form == "texts":
        return tuple(taken), ""
    if spec.form == "numbers":
        numbers = [_parse_number(text, whole=False) for text in taken]
        wrong = next((problem for _, problem in numbers if problem), "")
        return (None, wrong) if wrong else (tuple(number for number, _ in numbers), "")
    text = taken[0]
    if not text.strip() and spec.may_be_empty:
        return "", ""
    if not text.strip():
        return None, "has an empty value; is a shell variable not set?"
    if spec.choices and text not in spec.choices:
        hint = did_you_mean(text, spec.choices)
        return None, f"takes {', '.join(spec.choices)}, got {format_value(text)}" + (f"; {hint}" if hint else "")
    if spec.form == "text":
        return text, ""
    value, problem = _parse_number(text, whole=spec.form == "whole")
    return (None, problem) if problem else (value, "")


def _parse_number(text: str, *, whole: bool) -> tuple[float, str]:
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        return 0, f"must be {'an integer' if whole else 'a number'}, got {format_value(text)}"
    if whole and abs(value) >= 1 << 63:
        return 0, f"must be below 2^63, got {format_value(text)}"
    return value, "" if math.isfinite(value) else f"must be a finite number, got {format_value(text)}"


def format_value(value: Value) -> str:
    """A value for a message, shortened to 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…'"
