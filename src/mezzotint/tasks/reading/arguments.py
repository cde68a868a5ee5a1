"""Turns the arguments of a command into a recipe: `RECIPE key=value …`, or `--as NAME -- …` with the command line of
another trainer; and translates the command line of another trainer's tool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mezzotint.errors import Problem, RecipeError
from mezzotint.runtimes.shared.launch import Launch
from mezzotint.settings.optimizers.library import TRUSTED
from mezzotint.settings.reading.read import Reading
from mezzotint.tasks.reading import command_line, continuing, foreign, hub
from mezzotint.tasks.reading.command_line import CommandLine
from mezzotint.tasks.reading.commands import ALLOW, AS, REPLACE, Command


def parse(arguments: Sequence[str], command: str) -> Reading:
    """The recipe of `RECIPE key=value …`, or of `--as NAME [key=value …] -- …`.

    arguments: those after the command. Raises RecipeError: E1012 for a missing recipe and as `command_line.parse`,
    E1015 for an unknown dialect, and whatever `read` or the dialect reports.
    """
    return parse_with(arguments, command)[0]


def parse_with(arguments: Sequence[str], command: str) -> tuple[Reading, CommandLine]:
    """The reading of `parse`, and the command line with its options. A foreign command line is translated for the
    number of processes of `--processes=N`, by default of this launch. Raises as `parse`."""
    line = command_line.parse(arguments, command)
    reading = replace(_read(line), packages=line.packages, replaces=REPLACE.name in line)
    problems = list(_packages_not_allowed(reading))
    if problems:
        raise RecipeError(reading.name, problems=reading.add_lines(problems))
    return reading, line


def preflight(arguments: Sequence[str], command: Command) -> tuple[list[str], Mapping[str, str]]:
    """Reads a command line before the command's module, and torch, is imported: a mistyped recipe is refused at once.

    Returns the words for the command, translated for a foreign command line; and the foreign flag that each setting and
    option comes from. Raises as `parse`, and as the dialect.
    """
    if command.reads_recipe:
        reading, line = parse_with(arguments, command.name)
        return list(arguments), reading.origin if line.dialect is not None else {}
    line = command_line.parse(arguments, command.name)
    if line.dialect is None or not command.has_tools:
        return list(arguments), {}
    return foreign.equivalent_arguments(command.name, line.dialect, line.foreign, line.to_arguments(leaving=[AS.name]))


def _packages_not_allowed(reading: Reading) -> Iterator[Problem]:
    """Classes of packages that the command line has not allowed."""
    optim = reading.recipe.optim
    named = {f"optim.part_optimizer.{part}": rule for part, rule in optim.part_optimizer.items()}
    for where, rule in ({"optim.optimizer": optim.optimizer} | named).items():
        if rule.imported_class is None:
            continue
        package = rule.imported_class.partition(".")[0]
        if package not in (*TRUSTED, *reading.packages):
            problem = f"{rule.imported_class} is in the package {package}, which a recipe cannot import by itself"
            remedy = f"if you trust it, add {ALLOW.name} {package} to the command line"
            yield Problem(f"{where}.class_name", problem, remedy, "E1161")


def _read(line: CommandLine) -> Reading:
    name, plain = line.command.name, line.plain
    if line.dialect is not None:
        launched = foreign.launch_facts(Launch.read(), line.get_integer("--processes", 1))
        return hub.with_folders(
            continuing.with_run(foreign.read_command_line(line.dialect, line.foreign, plain, launched)), insist=True
        )
    if not plain or "=" in plain[0]:
        problem = f"{plain[0]!r} is where the recipe is expected" if plain else "no recipe is given"
        raise line.usage_error(f"{problem}; write mezzotint {name} RECIPE.yaml [key=value …]")
    return hub.with_folders(continuing.with_run(continuing.read_source(plain[0], plain[1:])), insist=False)
