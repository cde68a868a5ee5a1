"""The one parser of the command line: the words behind a verb, parted into names and settings, switches with their
values, and the line of another trainer.

`--switch value` and `--switch=value` are the same, so are hyphens and underscores; switches and other words stand in
any order. After a lone `--` every word belongs to the foreign line. What a verb knows is said in `verbs.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mezzotint.errors import RecipeError
from mezzotint.tasks.reading import _switch_hints
from mezzotint.tasks.reading.verbs import ALLOW, AS, VERBS, Switch, Verb

_SETTING = re.compile(r"[a-z_]+(\.[A-Za-z0-9_-]+)+\+?=")


@dataclass(frozen=True, slots=True)
class Words:
    """The words behind a verb, in order. plain: what is no switch. switches: with their values, "" for one that stands
    alone. foreign: what follows `--`."""

    verb: Verb
    plain: tuple[str, ...] = ()
    switches: tuple[tuple[Switch, str], ...] = ()
    foreign: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return any(switch.name == name for switch, _ in self.switches)

    def all(self, name: str) -> list[str]:
        """The values of a switch that may be given more than once."""
        return [value for switch, value in self.switches if switch.name == name]

    def get(self, name: str) -> str | None:
        """The value of a switch, None without one."""
        return next(iter(self.all(name)), None)

    def path(self, name: str) -> Path | None:
        """The path that a switch names, `~` opened."""
        text = self.get(name)
        return None if text is None else Path(text).expanduser()

    def whole(self, name: str, least: int) -> int | None:
        """The whole number that a switch gives. Raises RecipeError E1012 for anything else, and below `least`."""
        text = self.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= 10**9):
            raise self.wrong(f"{name} is a whole number of at least {least}, got {text!r}")
        return int(text)

    def number(self, name: str) -> float | None:
        """The number that a switch gives. Raises RecipeError E1012 for anything else."""
        text = self.get(name)
        try:
            value = None if text is None else float(text)
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise self.wrong(f"{name} is a number, got {text!r}")
        return value

    @property
    def dialect(self) -> str | None:
        """What `--as` names."""
        return self.get(AS.name)

    @property
    def packages(self) -> tuple[str, ...]:
        """What `--allow-package` names, each once."""
        names = (name for value in self.all(ALLOW.name) for name in value.split(","))
        return tuple(dict.fromkeys(filter(None, names)))

    def written(self, *, leaving: Sequence[str] = ()) -> list[str]:
        """The words as they may be typed, without the switches named in `leaving`, the foreign line at the end."""
        kept = [(switch, value) for switch, value in self.switches if switch.name not in leaving]
        dialect = [word for switch, value in kept if switch is AS for word in (AS.name, value)]
        ours = [f"{one.name}={value}" if one.takes_value else one.name for one, value in kept if one is not AS]
        return [*dialect, *self.plain, *ours, *(["--", *self.foreign] if dialect else [])]

    def wrong(self, what: str) -> RecipeError:
        """What is wrong with the line, to be raised: E1012."""
        return _wrong(self.verb, what)


def parse(arguments: Sequence[str], verb: str) -> Words:
    """Parts the words after a verb.

    Raises RecipeError E1012 for an unknown switch, with what to write instead; for one without the value it takes, with
    one that it does not take, or given twice; for `--` without `--as NAME` and the other way round; and for another
    number of names than the verb takes.
    """
    entry = next(one for one in VERBS if one.name == verb)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    plain, switches = _parted(entry, arguments[:end], arguments)
    words = Words(entry, tuple(plain), tuple(switches), tuple(arguments[end + 1 :]))
    if (words.dialect is None) != (end == len(arguments)):
        what = "-- needs --as NAME" if words.dialect is None else "--as needs the foreign line after --"
        raise words.wrong(f"{what}; write mezzotint {verb} --as NAME -- THE LINE AS IT IS")
    least, most = entry.names
    if not least <= len(plain) <= most and not (words.dialect is not None and entry.has_tools):
        names = f"{len(plain)} name{'s' if len(plain) != 1 else ''}"
        raise words.wrong(f"write {f'mezzotint {verb} {entry.form}'.rstrip()}; got {names}")
    return words


def is_setting(word: str) -> bool:
    """Whether a word sets a path of the recipe, `key=value`, and names nothing."""
    return _SETTING.match(word) is not None


def _parted(verb: Verb, ours: Sequence[str], line: Sequence[str]) -> tuple[list[str], list[tuple[Switch, str]]]:
    plain: list[str] = []
    switches: list[tuple[Switch, str]] = []
    unknown: tuple[str, str | None, str | None] | None = None
    gathering: Switch | None = None
    rest = list(ours)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-" or verb.flags_are_names:
            if gathering is not None and not is_setting(word):
                switches.append((gathering, word))
            else:
                plain.append(word)
            continue
        flag, sign, text = word.partition("=")
        follower = rest[0] if rest and not rest[0].startswith("--") else None
        switch = verb.switch(flag)
        gathering = switch if switch is not None and switch.gathers else None
        if switch is None:
            unknown = unknown or (flag, text if sign else None, follower)
            continue
        if switch.takes_value and not sign and follower is not None:
            text = rest.pop(0)
        _require_form(verb, switch, word, text)
        if not switch.repeats and any(switch is one for one, _ in switches):
            raise _wrong(verb, f"{switch.name} is given twice")
        switches.append((switch, text))
    if unknown is not None:
        flag, value, follower = unknown
        names = [word for word in plain if "=" not in word]
        if value is None and follower is not None and "=" not in follower and names != [follower]:
            value = follower  # and no recipe
        _switch_hints.refuse(flag, value, line, verb)
    return plain, switches


def _require_form(verb: Verb, switch: Switch, word: str, text: str) -> None:
    if not switch.takes_value and "=" in word:
        raise _wrong(verb, f"{switch.name} takes no value; write {switch.form}")
    if switch.takes_value and not text and not (switch.may_be_empty and "=" in word):
        raise _wrong(verb, f"{switch.name} needs a value; write {switch.form}")
    if switch.choices and text not in switch.choices:
        raise _wrong(verb, f"{switch.name} is {' or '.join(switch.choices)}, got {text}")


def _wrong(verb: Verb, what: str) -> RecipeError:
    return RecipeError(f"mezzotint {verb.name}: {what}", code="E1012")
