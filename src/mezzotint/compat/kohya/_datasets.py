"""Data sets of a command line or of a data set file, as `data`."""

from __future__ import annotations

from mezzotint.compat.kit.dialect import Draft
from mezzotint.compat.kohya._scripts import Script


def set_data(draft: Draft, script: Script) -> None:
    """Sets the section `data`."""
