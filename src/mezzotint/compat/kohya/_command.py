"""The start of a command: a launcher with a training script, or a settings file of the kohya_ss GUI."""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.compat.kit import launchers
from mezzotint.compat.kit.launchers import ParsedCommand
from mezzotint.compat.kohya import _gui
from mezzotint.compat.kohya._scripts import SCRIPTS
from mezzotint.errors import Problem

_OPTION = "--script="


def parse_command(arguments: Sequence[str]) -> ParsedCommand:
    """Splits a command into its launcher and the options of the script, whose name becomes the option `--script`."""
    command = _gui.expand_gui_file(arguments) or launchers.strip_launcher(arguments, [f"{one}.py" for one in SCRIPTS])
    name = command.script.removesuffix(".py")
    written = [one.removeprefix(_OPTION) for one in command.arguments if one.startswith(_OPTION)]
    if name not in SCRIPTS:
        return command
    if not written:
        command.arguments.insert(0, f"{_OPTION}{name}")
    elif written != [name]:
        command.problems.append(
            Problem("--script", f"is {written[-1]}, and the command has {command.script}", "", "E1017")
        )
    return command
