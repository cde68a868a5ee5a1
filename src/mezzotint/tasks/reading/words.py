"""The one parser of the command line: the words behind a verb, parted into names and settings, switches with their
values, and the line of another trainer.

`--switch value` and `--switch=value` are the same, so are hyphens and underscores; switches and other words stand in
any order. After a lone `--` every word belongs to the foreign line. What a verb knows is said in `verbs.py`.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from mezzotint import registry
from mezzotint.errors import RecipeError, did_you_mean
from mezzotint.recipe.reading.foreign_names import foreign, value_of
from mezzotint.recipe.reading.nearest import nearest
from mezzotint.recipe.reading.paths import by_path
from mezzotint.recipe.reading.translation import Translator
from mezzotint.tasks.reading.verbs import ALLOW, AS, VERBS, Switch, Verb

_SETTING = re.compile(r"[a-z_]+(\.[A-Za-z0-9_-]+)+\+?=")

_SHORT = {
    "o": "run.folder", "out": "run.folder", "output": "run.folder", "data": "data.path", "images": "data.path",
    "model": "model.path", "name": "run.name", "n": "run.name", "size": "data.resolution", "batch": "data.batch_size",
    "steps": "run.steps", "epoch": "run.epochs", "device": "run.device",
    "prompt": "sample.prompts",
}  # fmt: skip
"""What people write short."""


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
        line = f"write {f'mezzotint {verb} {entry.form}'.rstrip()}"
        count = f"got {len(plain)} name{'s' if len(plain) != 1 else ''}"
        raise words.wrong(f"{line}; {count}" if plain else f"nothing is named; {line}")
    return words


def weighted(text: str) -> tuple[Path, float | None]:
    """`FILE`, or `FILE:0.8` with a strength behind it. A file whose own name ends so comes first."""
    name, _, number = text.rpartition(":")
    if not name or re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", number) is None or Path(text).expanduser().exists():
        return Path(text).expanduser(), None
    return Path(name).expanduser(), float(number)


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
        _refuse(flag, value, line, verb)
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


# --- what to write instead of a switch that a verb does not have ---


def _refuse(flag: str, value: str | None, words: Sequence[str], verb: Verb) -> NoReturn:
    """Raises RecipeError E1012 for a switch that a verb does not know.

    value: what stands behind it, None without. words: all that stands behind the verb.
    """
    raise RecipeError(f"mezzotint {verb.name}{_sentence(flag, value, words, verb)}", code="E1012")


def _sentence(flag: str, value: str | None, words: Sequence[str], verb: Verb) -> str:
    known = [switch.name for switch in verb.known()]
    otherwise = f"`mezzotint {verb.name} --help` lists what it takes"
    if not verb.reads_recipe:
        instead = verb.instead.get(flag.replace("_", "-").lower())
        hint = instead and "write " + instead.replace("{}", shlex.quote(value) if value else "VALUE")
        return f" has no switch {flag}; {hint or did_you_mean(flag, known, otherwise)}"
    dialect = _dialect_of(words)
    if dialect is not None:
        line = shlex.join(words)
        return f" reads a recipe; for a line of {dialect} write mezzotint {verb.name} --as {dialect} -- {line}"
    if flag == "--resume":
        return f": {_going_on(value, words, verb.name)}"
    hint = did_you_mean(flag, known, cutoff=0.8)
    setting = _SHORT.get(flag.lstrip("-")) or nearest(flag.lstrip("-"))
    if not hint and setting is not None:
        hint = _setting_hint(flag, setting, value)
    return f" has no switch {flag}; {hint or f'{otherwise}; settings are written key=value, without dashes'}"


def _setting_hint(flag: str, setting: str, value: str | None) -> str:
    if setting not in by_path():
        return f"did you mean a setting of {setting}? `mezzotint explain {setting}` lists them"
    is_switch = by_path()[setting].shape.base is bool
    text = value if value is not None else "true" if is_switch else "VALUE"
    text = value_of(setting, text) or text
    known = foreign(flag)
    note = f" ({known.note})" if known is not None and known.note else ""
    return f"write {setting}={shlex.quote(text)}{note}"


def _going_on(value: str | None, words: Sequence[str], verb: str) -> str:
    """`--resume` of trainers that do not go on by themselves."""
    if value is not None and not Path(value).exists():
        value = None  # `--resume latest`
    rest = [word for word in words if not word.startswith("--resume") and word not in (value, "latest", "auto")]
    line = shlex.join(["mezzotint", verb, value, *rest[1:]] if value is not None else ["mezzotint", verb, *rest])
    return f"a run goes on by itself where it stopped; write {line}"


def _dialect_of(words: Sequence[str]) -> str | None:
    """The dialect of a line without a recipe that names its model as that dialect does; of several the one that knows
    most of its switches, and of those the one with the shortest name, the plainest of its project's scripts."""
    if not words or not words[0].startswith("--") or "--" in words:
        return None
    flags = {word.partition("=")[0].removeprefix("--") for word in words if word.startswith("--")}
    best, most = None, 0
    for name in sorted(registry.names("dialects", skip_unimported=True), key=len):
        translator: Translator = registry.find("dialects", name).DIALECT
        paths = translator.paths_of_flags()
        names_model = any("model.path" in paths[flag] for flag in flags & paths.keys())
        count = len(flags & paths.keys())
        if names_model and count > most:
            best, most = name, count
    return best
