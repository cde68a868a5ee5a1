"""The stable codes of what can go wrong, each with what `mezzotint explain CODE` prints.

A file for each page of docs/reference/errors. From outside: `CODES` and `SEE_MESSAGE` alone.
"""

from __future__ import annotations

from mezzotint.codes import data, model, recipes, running

CODES: dict[str, str] = recipes.CODES | data.CODES | model.CODES | running.CODES
"""By code: a title of one line; behind a line break a paragraph, only where it has a cause, a remedy or a consequence
that the error's own message does not have. A test holds this table against the source."""

SEE_MESSAGE = "The error's message names the place and what to do."
"""What stands in the place of a paragraph."""
