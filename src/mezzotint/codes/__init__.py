"""The stable codes of what can go wrong, each with the paragraph that `mezzotint explain CODE` prints.

A file for each page of docs/reference/errors. From outside: `CODES` alone.
"""

from __future__ import annotations

from mezzotint.codes import data, model, recipes, running

CODES: dict[str, str] = recipes.CODES | data.CODES | model.CODES | running.CODES
"""Every stable code with the paragraph that `mezzotint explain CODE` prints. A test holds this table against the
source."""
