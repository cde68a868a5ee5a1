"""What verbs share: `RECIPE key=value …` with a verb's own switches, or `--as NAME -- …` with the command line of
another trainer, read into a recipe.

Switches are one word each, `--json` or `--out=FILE`, so that recipe and settings stand in any order around them; only
the dialect may follow its switch, `--as NAME`. After a lone `--` every word belongs to the foreign line.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mezzotint import registry
from mezzotint.errors import RecipeError
from mezzotint.recipe.read import Reading, read
from mezzotint.runtimes._launch import Launch
from mezzotint.tasks import _continuing, _foreign, _hub

FOREIGN = "mezzotint {} --as NAME -- THE LINE AS IT IS"
"""How a foreign line is written; the braces take the verb."""


@dataclass(slots=True)
class Asked:
    """The words after a verb, parted. words: recipe and settings. given: switches with their values, None without one.
    dialect: what follows `--as`. foreign: what follows `--`."""

    words: list[str] = field(default_factory=list)
    given: dict[str, str | None] = field(default_factory=dict)
    dialect: str | None = None
    foreign: tuple[str, ...] = ()


def parse(arguments: Sequence[str], verb: str) -> Reading:
    """Reads `RECIPE key=value …`, or `--as NAME [key=value …] -- …`, of a verb without switches.

    arguments: the words after the verb. Raises RecipeError: E1012 for a missing recipe or an unknown switch, E1015 for
    an unknown dialect, and whatever `read` or the dialect finds.
    """
    return parse_with(arguments, verb, {})[0]


def parse_with(arguments: Sequence[str], verb: str, flags: Mapping[str, str]) -> tuple[Reading, dict[str, str]]:
    """Reads what `parse` does, and the switches of a verb.

    flags: what the verb knows: `{"--json": "one JSON document", "--out=FILE": "where to write"}`. Returns the reading,
    and the switches given with their values ("" without one): `{"--json": "", "--out": "a.txt"}`. A foreign line is
    translated for as many processes as `--processes=N` says, otherwise for those that run. Raises as `parse`.
    """
    asked = take(arguments, verb)
    known = {flag.partition("=")[0]: "=" in flag for flag in flags}
    for flag, value in asked.given.items():
        if flag not in known:
            raise RecipeError(_unknown_flag(flag, verb, known), code="E1012")
        if known[flag] != (value is not None):
            form = next(f for f in flags if f.partition("=")[0] == flag)
            raise RecipeError(f"mezzotint {verb}: the switch is written {form}", code="E1012")
    return _reading(asked, verb), {flag: value or "" for flag, value in asked.given.items()}


def preflight(arguments: Sequence[str], verb: str) -> Mapping[str, str]:
    """Reads the recipe of a verb before the verb's module, and with it torch, is imported: a mistyped recipe answers
    at once. Returns the flag that each setting comes from, of a foreign line. Raises as `parse`, apart from unknown
    switches, which only the verb can tell."""
    asked = take(arguments, verb)
    reading = _reading(asked, verb)
    return reading.origin if asked.dialect is not None else {}


def take(arguments: Sequence[str], verb: str) -> Asked:
    """Parts the words after a verb. Raises RecipeError E1012 for `--as` without a name or without `--`, and the other
    way round."""
    asked, rest = Asked(), list(arguments)
    foreign = "--" in rest
    if foreign:
        at = rest.index("--")
        asked.foreign = tuple(rest[at + 1 :])
        del rest[at:]
    while rest:
        word = rest.pop(0)
        flag, sign, value = word.partition("=")
        if flag == "--as":
            asked.dialect = value if sign else rest.pop(0) if rest else ""
        elif word.startswith("-") and len(word) > 1:
            asked.given[flag] = value if sign else None
        else:
            asked.words.append(word)
    if foreign != (asked.dialect is not None) or asked.dialect == "":
        what = "--as needs a name and the foreign line after --" if asked.dialect is not None else "-- needs --as NAME"
        raise RecipeError(f"mezzotint {verb}: {what}; write {FOREIGN.format(verb)}{_known()}", code="E1012")
    return asked


def translated(arguments: Sequence[str], verb: str) -> tuple[list[str], Mapping[str, str]]:
    """The words of a verb that reads no recipe: a foreign line, `--as NAME -- …`, as what it amounts to, others as they
    are; and the flags of that line by our switches and settings. Raises as `take`, and as the dialect."""
    if not any(word == "--as" or word.startswith("--as=") for word in arguments):
        return list(arguments), {}
    asked = take(arguments, verb)
    assert asked.dialect is not None
    ours = [flag if value is None else f"{flag}={value}" for flag, value in asked.given.items()]
    return _foreign.words(verb, asked.dialect, asked.foreign, [*asked.words, *ours])


def process_count(asked: Asked, verb: str) -> int | None:
    """What `--processes=N` says, None without it. Raises RecipeError E1012 for anything but a number above 0."""
    if "--processes" not in asked.given:
        return None
    text = asked.given["--processes"]
    if text is None or not text.isdecimal() or int(text) < 1:
        raise RecipeError(f"mezzotint {verb}: --processes is a whole number above 0, got {text or ''!r}", code="E1012")
    return int(text)


def _reading(asked: Asked, verb: str) -> Reading:
    if asked.dialect is not None:
        place = _foreign.launched(Launch.read(), process_count(asked, verb))
        translated = _foreign.reading(asked.dialect, asked.foreign, asked.words, place)
        return _hub.found(_continuing.found(translated), insist=True)
    words = asked.words
    if not words or "=" in words[0]:
        what = f"{words[0]!r} stands where the recipe belongs" if words else "no recipe is given"
        raise RecipeError(f"mezzotint {verb}: {what}; write mezzotint {verb} RECIPE.yaml [key=value …]", code="E1012")
    return _hub.found(_continuing.found(read(words[0], words[1:])), insist=False)


def _known() -> str:
    return f" (dialects: {', '.join(registry.names('dialects'))})"


def _unknown_flag(flag: str, verb: str, known: Mapping[str, bool]) -> str:
    near = difflib.get_close_matches(flag, known, n=1)
    if near:
        hint = f"did you mean {near[0]}?"
    else:
        hint = f"`mezzotint {verb} --help` lists what it takes; settings are written key=value, without dashes"
    return f"mezzotint {verb} has no switch {flag}; {hint}"
