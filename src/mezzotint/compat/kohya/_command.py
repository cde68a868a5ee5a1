"""The start of a command: a launcher with a training script, or a settings file of the kohya_ss GUI."""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.compat.kit import launchers
from mezzotint.compat.kit.launchers import ParsedCommand
from mezzotint.compat.kit.script_names import add_script
from mezzotint.compat.kohya import _gui
from mezzotint.compat.kohya._scripts import OTHER_SCRIPTS, SCRIPTS


def parse_command(arguments: Sequence[str]) -> ParsedCommand:
    """Splits a command into its launcher and the options of the script, whose name becomes the option `--script`."""
    command = _gui.expand_gui_file(arguments) or launchers.strip_launcher(arguments, [f"{one}.py" for one in SCRIPTS])
    return add_script(command, SCRIPTS, OTHER_SCRIPTS)
