"""What a verb is, and a switch of it. No pydantic and no torch here, so that `--help` answers at once."""

from __future__ import annotations

import os.path  # pathlib takes a tenth of --help
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

MANY = 10**9
"""As many names as one likes."""


class Switch(NamedTuple):
    """A switch of a verb. form: how it is written, `--dtype=fp16`, or `--json` for one that stands alone. meaning: one
    line of help. choices: the values
    it takes; empty takes any. aliases: what other programs call it. setting: the recipe's setting that it stands for,
    "" for none. repeats: it may be given more than once. gathers: words behind its value are further values.
    may_be_empty: `--negative=` is a value, too.
    """

    form: str
    meaning: str
    choices: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    setting: str = ""
    repeats: bool = False
    gathers: bool = False
    may_be_empty: bool = False

    @property
    def name(self) -> str:
        """What it is called."""
        return self.form.partition("=")[0]

    @property
    def takes_value(self) -> bool:
        """Whether a value follows it."""
        return "=" in self.form

    @property
    def help(self) -> str:
        """The setting it stands for and what it means."""
        return ", ".join(filter(None, (self.setting, self.meaning)))


AS = Switch("--as=NAME", "the dialect of the line after `--`; `mezzotint ls dialects` lists them")
"""The line of another trainer follows a lone `--`."""

ALLOW = Switch("--allow-package=NAME", "a package that may be imported for an optimizer's class", repeats=True)
"""Of every verb that reads a recipe. Importing a package runs it, so that no recipe can say it."""


REPLACE = Switch("--replace", "put what is written in the place of what lies there; without it nothing is written over")
"""Of every verb that writes where its user says."""


class Verb(NamedTuple):
    """A verb. about: one line. form: what follows it. examples: three command lines with what they do. switches: its
    own. reads_recipe: whether RECIPE key=value come first, or the line of another trainer after `--as`. has_tools:
    whether it takes lines of other trainers' tools: MindONE's example has one for each. names: how many names stand
    behind it, at least and at most. flags_are_names: words with hyphens before them are names as well. instead: what
    to write for a switch that it does not have; braces take the value. floor: where it lies; above the others, for what
    shows what they make."""

    name: str
    about: str
    form: str
    examples: tuple[tuple[str, str], ...]
    switches: tuple[Switch, ...] = ()
    reads_recipe: bool = False
    has_tools: bool = False
    names: tuple[int, int] = (0, MANY)
    flags_are_names: bool = False
    instead: Mapping[str, str] = MappingProxyType({})
    floor: str = "tasks"

    @property
    def module(self) -> str:
        """What is imported when it is used, `tasks/NAME/NAME.py` or `tasks/NAME.py`: `run(words) -> exit status`."""
        if self.floor != "tasks":
            return f"mezzotint.{self.floor}.{self.name.replace('-', '_')}"
        has_folder = os.path.isdir(os.path.join(os.path.dirname(__file__), os.pardir, self.name))
        return f"mezzotint.tasks.{self.name}.{self.name}" if has_folder else f"mezzotint.tasks.{self.name}"

    def switch(self, name: str) -> Switch | None:
        """Its switch of a name or alias, written with hyphens or underscores; None for what it does not know."""
        name = name.replace("_", "-")
        return next((one for one in self.known() if name in (one.name, *one.aliases)), None)

    def known(self) -> tuple[Switch, ...]:
        """Its own switches and those that verbs of its kind share."""
        lines = (AS,) if (self.reads_recipe or self.has_tools) else ()
        return (*self.switches, *lines, *((ALLOW,) if self.reads_recipe else ()))
