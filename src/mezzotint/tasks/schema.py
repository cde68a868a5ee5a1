"""`mezzotint schema`: the JSON Schema of recipes for editors, or the reference page of all settings."""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.recipe import reference
from mezzotint.tasks.reading import words


def run(arguments: Sequence[str]) -> int:
    """Prints JSON Schema, with `--markdown` the reference page. Raises RecipeError E1012 for anything else."""
    as_page = "--markdown" in words.parse(arguments, "schema")
    print(reference.markdown() if as_page else reference.json_schema_text(), end="")
    return 0
