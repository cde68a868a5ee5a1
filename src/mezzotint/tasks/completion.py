"""`mezzotint completion bash|zsh|fish`: a script that completes commands, options, their values, recipes and settings.

The script holds all words, so that nothing is started while somebody types; print it again after an update.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from mezzotint import registry
from mezzotint.errors import did_you_mean
from mezzotint.settings.families.base import FOLDER as FAMILIES
from mezzotint.settings.reading.paths import by_path, open_families, open_formats
from mezzotint.settings.reading.read import shipped_recipes
from mezzotint.tasks.ls import list_kinds
from mezzotint.tasks.queue.queue import ACTIONS
from mezzotint.tasks.reading import command_line
from mezzotint.tasks.reading.commands import COMMANDS, Command


def run(arguments: Sequence[str]) -> int:
    """Prints the script of a shell. Raises RecipeError E1012 for an unknown one."""
    line = command_line.parse(arguments, "completion")
    shell = line.plain[0]
    if shell not in _SCRIPTS:
        hint = did_you_mean(shell, _SCRIPTS, f"it has {', '.join(_SCRIPTS)}")
        raise line.usage_error(f"there is no script for {shell!r}; {hint}")
    print(_SCRIPTS[shell](), end="")
    return 0


def _first_words(command: Command) -> list[str]:
    """What may follow a command's name, besides files."""
    fixed: Mapping[str, Sequence[str]] = {
        "queue": list(ACTIONS), "completion": list(_SCRIPTS), "ls": list(list_kinds()), "help": [],
        "cp": list(shipped_recipes()), "explain": list(by_path()),
    }  # fmt: skip
    if command.name in fixed:
        return list(fixed[command.name])
    return list(shipped_recipes()) if _takes_settings(command) else []


def _takes_settings(command: Command) -> bool:
    return "key=value" in command.form


def _setting_names() -> list[str]:
    """All settings, those of every family and format included, as they are typed."""
    open_families(registry.names(FAMILIES))
    open_formats(registry.names("settings/formats"))
    return [f"{path}=" for path in by_path() if re.fullmatch(r"[a-z_0-9.]+", path)]


def _values() -> dict[str, list[str]]:
    """The values of settings that are one of a few words."""
    return {path: list(map(str, setting.choices)) for path, setting in by_path().items() if setting.choices}


def _options(command: Command) -> list[str]:
    return [f"{option.name}=" if option.takes_value else option.name for option in command.all_options()]


def _choices(command: Command) -> dict[str, tuple[str, ...]]:
    return {option.name: option.choices for option in command.all_options() if option.choices}


def _cases(rows: Mapping[str, Sequence[str]], variable: str, indent: str) -> str:
    """Lines of a shell's `case` that set a variable to the words of a row."""
    return "".join(f"{indent}{shlex.quote(key)}) {variable}={shlex.quote(' '.join(words))};;\n" for key, words in rows.items() if words)
