"""Commands, options, and the argparse parser that they define. It imports neither pydantic nor torch, to keep `--help`
fast."""

from __future__ import annotations

import os.path  # pathlib takes a tenth of --help
import re
from argparse import SUPPRESS, Action, ArgumentError, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from mezzotint.errors import RecipeError

MANY = 10**9
"""Any number of names."""

_SETTING = re.compile(r"[a-z_]+(\.[A-Za-z0-9_-]+)+\+?=")


class Option(NamedTuple):
    """An option of a command. form: how it is written, `--dtype=fp16`, or `--json` for a flag. meaning: one line of
    help. choices: the values it takes; empty takes any. aliases: its names in other programs. setting: the recipe's
    setting that it sets. repeats: it may be given several times. gathers: several values may follow it. may_be_empty:
    `--negative=` is a value."""

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
        return self.form.partition("=")[0]

    @property
    def takes_value(self) -> bool:
        return "=" in self.form

    @property
    def spellings(self) -> tuple[str, ...]:
        """Its name and aliases, with hyphens and with underscores."""
        names = (self.name, *self.aliases)
        return tuple(dict.fromkeys((*names, *(f"--{name[2:].replace('-', '_')}" for name in names))))

    @property
    def help(self) -> str:
        """The setting that it sets and its meaning."""
        return ", ".join(filter(None, (self.setting, self.meaning)))


AS = Option("--as=NAME", "the dialect of the line after `--`; `mezzotint ls dialects` lists them")
"""For commands that accept the command line of another trainer."""

ALLOW = Option(
    "--allow-package=NAME", "a package besides torch, bitsandbytes and pytorch_optimizer that may be imported for an "
    "optimizer's class", repeats=True,
)  # fmt: skip
"""For every command that reads a recipe. Importing a package runs its code, so a recipe cannot allow it."""

REPLACE = Option("--replace", "replace what exists at the destination; without it nothing is overwritten")
"""For every command that writes to a path of the user's choice."""


class Command(NamedTuple):
    """A command. about: one line. form: what follows its name. examples: three command lines and their meaning.
    options: of this command only. reads_recipe: whether RECIPE key=value comes first, or the line of another trainer
    after `--as`. has_tools: whether it accepts command lines of other trainers' tools. names: the least and the largest
    number of names. flags_are_names: arguments that begin with hyphens are names as well. instead: what to write in
    place of an option that it does not have; {} is the value. package: where its module is."""

    name: str
    about: str
    form: str
    examples: Mapping[str, str]
    options: tuple[Option, ...] = ()
    reads_recipe: bool = False
    has_tools: bool = False
    names: tuple[int, int] = (0, MANY)
    flags_are_names: bool = False
    instead: Mapping[str, str] = MappingProxyType({})
    package: str = "tasks"

    @property
    def module(self) -> str:
        """The module that it runs, `tasks/NAME/NAME.py` or `tasks/NAME.py`: `run(arguments) -> exit status`."""
        if self.package != "tasks":
            return f"mezzotint.{self.package}.{self.name.replace('-', '_')}"
        has_folder = os.path.isdir(os.path.join(os.path.dirname(__file__), os.pardir, self.name))
        return f"mezzotint.tasks.{self.name}.{self.name}" if has_folder else f"mezzotint.tasks.{self.name}"

    def all_options(self) -> tuple[Option, ...]:
        """All its options, including those shared by commands of its kind."""
        lines = (AS,) if self.reads_recipe or self.has_tools else ()
        return (*self.options, *lines, *((ALLOW,) if self.reads_recipe else ()))

    def option(self, name: str) -> Option | None:
        """Its option by a name or alias, written with hyphens or underscores; None for an unknown one."""
        return next((option for option in self.all_options() if name in option.spellings), None)

    def usage_error(self, problem: str) -> RecipeError:
        """The error E1012 for a command line that cannot be understood."""
        return RecipeError(f"mezzotint {self.name}: {problem}", code="E1012")


class _Collect(Action):
    """Appends (option, value) to `namespace.options`; `key=value` among several values goes to `namespace.settings`."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, option: Option, **more: Any) -> None:
        nargs = 0 if not option.takes_value else "+" if option.gathers else None
        super().__init__(option_strings, dest, nargs=nargs, **more)
        self.option = option

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: object, option_string: str | None = None
    ) -> None:
        option = self.option
        first, *others = (values or [""]) if isinstance(values, list) else [values]
        if option.takes_value and not first and not option.may_be_empty:
            raise ArgumentError(self, "the value is empty")
        if option.choices and first not in option.choices:
            problem = f"{option.name} is {' or '.join(option.choices)}, got {first}"
            raise RecipeError(f"{parser.prog}: {problem}", code="E1012")
        if not option.repeats and any(given is option for given, _ in namespace.options):
            raise RecipeError(f"{parser.prog}: {option.name} is given twice", code="E1012")
        namespace.settings += filter(is_setting, others)
        namespace.options += [(option, text) for text in (first, *others) if text is first or not is_setting(text)]


def is_setting(argument: str) -> bool:
    """Whether an argument is a setting, `key=value`, and not a name."""
    return _SETTING.match(argument) is not None


def read_options(command: Command, arguments: Sequence[str], into: Namespace) -> list[str]:
    """Reads the options of a command line into the lists `options` and `settings` of a namespace, and returns the other
    arguments, unknown options among them. Raises RecipeError E1012."""
    try:
        return parser_of(command).parse_known_args(arguments, into)[1]
    except ArgumentError as error:  # argparse reports two errors: a missing value, and a value for a flag
        option = command.option((error.argument_name or "").partition("/")[0])
        if option is None:
            raise command.usage_error(str(error)) from None
        problem = "needs a value" if option.takes_value else "takes no value"
        raise command.usage_error(f"{option.name} {problem}; write {option.form}") from None


def parser_of(command: Command) -> ArgumentParser:
    """The parser of a command's options, which prints its help. Names and settings are the remaining arguments and may
    be anywhere on the command line."""
    line = f"mezzotint {command.name} --as NAME -- THE LINE AS IT IS."
    about = [command.about]
    if command.reads_recipe:
        about += [
            "",
            "RECIPE is a file, the name of a shipped recipe (`mezzotint ls recipes`), or the folder of a run.",
            "key=value sets any path of it, key+=value appends to a list; `mezzotint explain PATH` explains a setting.",
            f"The line of another trainer instead: {line}",
        ]
    if command.has_tools:
        about += ["", f"The line of another trainer's tool instead: {line}"]
    examples = [f"  {line}\n      {meaning}" for line, meaning in command.examples.items()]
    parser = ArgumentParser(
        prog=f"mezzotint {command.name}", usage=f"mezzotint {command.name} {command.form}".rstrip(),
        description="\n".join(about), epilog="\n".join(["examples", *examples]),
        formatter_class=RawDescriptionHelpFormatter, allow_abbrev=False, exit_on_error=False,
    )  # fmt: skip
    for option in command.all_options():
        metavar = option.form.partition("=")[2] or None
        more: dict[str, Any] = {"dest": "options", "action": _Collect, "option": option}
        more |= {"metavar": metavar} if option.takes_value else {}
        parser.add_argument(option.name, help=option.help.replace("%", "%%"), **more)
        hidden = [spelling for spelling in option.spellings if spelling != option.name]
        if hidden:
            parser.add_argument(*hidden, help=SUPPRESS, **more)
    return parser
