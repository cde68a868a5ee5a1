"""The start of a command: a launcher with a training script, or a settings file of the kohya_ss GUI."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mezzotint.compat.kit import launchers
from mezzotint.compat.kit.launchers import ParsedCommand
from mezzotint.compat.kohya import _gui
from mezzotint.compat.kohya._scripts import SCRIPTS
from mezzotint.errors import Problem


def parse_command(arguments: Sequence[str]) -> ParsedCommand:
    """Splits a command into its launcher and the options of the script, whose name becomes the option `--script`."""
    command = _gui.expand_gui_file(arguments) or launchers.strip_launcher(arguments, [f"{one}.py" for one in SCRIPTS])
    command.arguments = _add_suffix(command.arguments)
    name = command.script.removesuffix(".py")
    written = _find_option(command.arguments)
    if name not in SCRIPTS:
        if command.script and written in SCRIPTS and written != next(iter(SCRIPTS)):
            command.script = f"{written}.py"  # a renamed file
        return command
    if not written:
        command.arguments.insert(0, f"--script={name}")
    elif written != name:
        message = f"is {written}, and the command starts with {command.script}"
        command.problems.append(Problem("--script", message, "leave --script out", "E1017"))
    return command


def _find_option(arguments: Sequence[str]) -> str:
    """The value of `--script`, "" if it is not given."""
    written = ""
    for word, following in pairwise([*arguments, ""]):
        if word == "--script":
            written = following
        elif word.startswith("--script="):
            written = word.removeprefix("--script=")
    return written


def _add_suffix(arguments: Sequence[str]) -> list[str]:
    """The arguments with the suffix of the config file, which may be left out."""
    changed, is_name = [], False
    for word in arguments:
        is_file = word.startswith("--config_file=") or (is_name and not word.startswith("-"))
        changed.append(f"{word}.toml" if is_file and not word.endswith((".toml", "=")) else word)
        is_name = word == "--config_file"
    return changed
