"""sd-scripts' options: a row for each option of the training scripts."""

from __future__ import annotations

from mezzotint.compat.kit.dialect import row
from mezzotint.compat.kohya._data_rows import DATA, PREVIEWS
from mezzotint.compat.kohya._scripts import SCRIPTS

_START = (
    row("script", str, "model.family", "the script's name without .py, for a command without it",
        choices=tuple(SCRIPTS)),
)  # fmt: skip

ROWS = (*_START, *DATA, *PREVIEWS)
"""All options."""
SCRIPTS_OF: dict[str, str] = {}
