"""`mezzotint schema`: the JSON Schema of recipes for editors, or the reference page of all settings."""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.errors import RecipeError
from mezzotint.recipe import reference


def run(arguments: Sequence[str]) -> int:
    """Prints JSON Schema, with `--markdown` the reference page. Raises RecipeError E1012 for anything else."""
    match list(arguments):
        case []:
            print(reference.json_schema_text(), end="")
        case ["--markdown"]:
            print(reference.markdown(), end="")
        case [other, *_]:
            raise RecipeError(f"mezzotint schema does not know {other!r}; it takes --markdown or nothing", code="E1012")
    return 0
