"""Commands whose script decides what is trained: its name becomes the option `--script`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path

from mezzotint.compat.kit import setting_files
from mezzotint.compat.kit.launchers import ParsedCommand
from mezzotint.errors import Problem, did_you_mean


def add_script(command: ParsedCommand, names: Collection[str], others: Collection[str] = ()) -> ParsedCommand:
    """Adds the name of a command's script as `--script`, and the suffix of its config file. names: of the trainer's
    scripts, without .py, the first one of which is the dialect's. others: its other scripts."""
    command.arguments = _add_suffix(command.arguments)
    name = command.script.removesuffix(".py")
    written = _find_option(command.arguments)
    if name not in names:
        if command.script and written in names and written != next(iter(names)):
            command.script = f"{written}.py"  # a renamed file
        elif command.script and not written and command.script not in others:
            hint = did_you_mean(command.script, [*(f"{one}.py" for one in names), *others], cutoff=0.8)
            remedy = hint or f"for a renamed file, write --script=NAME: {', '.join(names)}"
            message = f"{command.script} is not one of the trainer's scripts"
            command.problems.append(Problem("--script", message, remedy, "E1017"))
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
        changed.append(f"{word}.toml" if is_file and _lacks_suffix(word.removeprefix("--config_file=")) else word)
        is_name = word == "--config_file"
    return changed


def _lacks_suffix(name: str) -> bool:
    """Whether a config file is named without its suffix. Other files, and folders, are reported by their own names."""
    path = Path(name).expanduser()
    is_file = setting_files.has_known_suffix(name) or (path.exists() and not Path(f"{path}.toml").exists())
    return bool(name) and not is_file
