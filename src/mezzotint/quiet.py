"""Warnings of libraries that mean nothing here, by message and module; every other warning is shown. For the command
line: who imports Mezzotint keeps what Python is told."""

from __future__ import annotations

import warnings

MEAN_NOTHING = (
    # how many workers there are changes no draw, and check says when they are more than the processors
    (r"This DataLoader will create \d+ worker processes in total", r"torch\.utils\.data\.dataloader$"),
    # a TIFF's own tags are read for nothing but its orientation and profile
    (r"Metadata Warning, tag \d+ had too many entries", r"PIL\.TiffImagePlugin$"),
)
"""(the message's beginning, the module) as regular expressions."""


def leave_out() -> None:
    """From now on these warnings are not shown. What Python was told (-W, PYTHONWARNINGS) comes first."""
    for message, module in MEAN_NOTHING:
        warnings.filterwarnings("ignore", message=message, category=UserWarning, module=module, append=True)
