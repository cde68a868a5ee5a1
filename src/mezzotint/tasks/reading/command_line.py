"""The arguments of a command: names and settings, options with their values, and the command line of another trainer.

argparse reads the options (`parser.py`), by its usual rules: `--option value` and `--option=value`, no abbreviations.
Hyphens and underscores are the same, and options and other arguments may be in any order. After `--` every argument
belongs to the foreign command line. The table of commands is `commands.py`.
"""

from __future__ import annotations

import math
import re
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mezzotint.errors import RecipeError
from mezzotint.tasks.reading import hints
from mezzotint.tasks.reading.commands import ALLOW, AS, COMMANDS, Command, Option
from mezzotint.tasks.reading.parser import is_setting as is_setting
from mezzotint.tasks.reading.parser import read_options


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The arguments of a command. plain: names, then settings, each in order. options: with their values, "" for a
    flag. foreign: what follows `--`."""

    command: Command
    plain: tuple[str, ...] = ()
    options: tuple[tuple[Option, str], ...] = ()
    foreign: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return any(option.name == name for option, _ in self.options)

    def get_all(self, name: str) -> list[str]:
        """The values of an option that may be given several times."""
        return [value for option, value in self.options if option.name == name]

    def get(self, name: str) -> str | None:
        """The value of an option, None without one."""
        return next(iter(self.get_all(name)), None)

    def get_path(self, name: str) -> Path | None:
        """The path that an option names, with `~` expanded."""
        text = self.get(name)
        return None if text is None else Path(text).expanduser()

    def get_integer(self, name: str, least: int) -> int | None:
        """The integer value of an option. Raises RecipeError E1012 for anything else, and below `least`."""
        text = self.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdecimal() and least <= int(text) <= 10**9):
            raise self.usage_error(f"{name} is a whole number of at least {least}, got {text!r}")
        return int(text)

    def get_float(self, name: str) -> float | None:
        """The float value of an option. Raises RecipeError E1012 for anything else."""
        text = self.get(name)
        try:
            value = None if text is None else float(text)
        except ValueError:
            value = math.nan
        if value is not None and not math.isfinite(value):
            raise self.usage_error(f"{name} is a number, got {text!r}")
        return value

    @property
    def dialect(self) -> str | None:
        """The value of `--as`."""
        return self.get(AS.name)

    @property
    def packages(self) -> tuple[str, ...]:
        """The values of `--allow-package`, each once."""
        names = (name for value in self.get_all(ALLOW.name) for name in value.split(","))
        return tuple(dict.fromkeys(filter(None, names)))

    def to_arguments(self, *, leaving: Sequence[str] = ()) -> list[str]:
        """The arguments to type, without the options named in `leaving`, the foreign command line at the end."""
        options = [(option, value) for option, value in self.options if option.name not in leaving]
        dialect = [argument for option, value in options if option is AS for argument in (AS.name, value)]
        ours = [f"{opt.name}={value}" if opt.takes_value else opt.name for opt, value in options if opt is not AS]
        return [*dialect, *self.plain, *ours, *(["--", *self.foreign] if dialect else [])]

    def usage_error(self, problem: str) -> RecipeError:
        """The error E1012 for this command line."""
        return self.command.usage_error(problem)


def parse(arguments: Sequence[str], name: str) -> CommandLine:
    """Parses the arguments of a command.

    Raises RecipeError E1012 for an unknown option, with what to write instead; for a missing or unexpected value, or an
    option given twice; for `--` without `--as NAME` and the other way round; and for a wrong number of names.
    """
    command = next(candidate for candidate in COMMANDS if candidate.name == name)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    parsed, plain = Namespace(options=[], settings=[]), list(arguments[:end])
    if not command.flags_are_names:
        names = _read_options(command, plain, parsed)
        settings = sorted(filter(is_setting, (*names, *parsed.settings)), key=plain.index)
        plain = [*(name for name in names if not is_setting(name)), *settings]
    line = CommandLine(command, tuple(plain), tuple(parsed.options), tuple(arguments[end + 1 :]))
    if (line.dialect is None) != (end == len(arguments)):
        problem = "-- needs --as NAME" if line.dialect is None else "--as needs the foreign command line after --"
        raise line.usage_error(f"{problem}; write mezzotint {name} --as NAME -- THE LINE AS IT IS")
    least, most = command.names
    if not least <= len(plain) <= most and not (line.dialect is not None and command.has_tools):
        write = f"write {f'mezzotint {name} {command.form}'.rstrip()}"
        count = f"got {len(plain)} name{'s' if len(plain) != 1 else ''}"
        raise line.usage_error(f"{write}; {count}" if plain else f"no name is given; {write}")
    return line


def _read_options(command: Command, ours: list[str], parsed: Namespace) -> list[str]:
    """Reads the options into a namespace and returns the other arguments."""
    rest = read_options(command, ours, parsed)
    unknown = next((argument for argument in rest if argument.startswith("-") and argument != "-"), None)
    if unknown is None:
        return rest
    flag, sign, text = unknown.partition("=")
    names = [argument for argument in rest if not argument.startswith("-") and "=" not in argument]
    follower = next(iter(ours[ours.index(unknown) + 1 :]), "--")
    if sign or follower.startswith("--") or "=" in follower or names == [follower]:  # the only name is the recipe
        raise hints.unknown_option(flag, text if sign else None, names, command)
    raise hints.unknown_option(flag, follower, names, command)


def parse_weighted(text: str) -> tuple[Path, float | None]:
    """`FILE`, or `FILE:0.8` with a strength. An existing file with such a name comes first."""
    name, _, number = text.rpartition(":")
    if not name or re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", number) is None or Path(text).expanduser().exists():
        return Path(text).expanduser(), None
    return Path(name).expanduser(), float(number)
