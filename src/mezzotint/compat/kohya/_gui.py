"""Settings files (JSON) of the kohya_ss GUI."""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.compat.kit.launchers import ParsedCommand


def expand_gui_file(arguments: Sequence[str]) -> ParsedCommand | None:
    """The command of a saved settings file, None if `arguments` do not start with one."""
    return None
