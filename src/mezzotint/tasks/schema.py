"""`mezzotint schema`: the JSON Schema of recipes, for editors."""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.settings import reference
from mezzotint.tasks.reading import command_line


def run(arguments: Sequence[str]) -> int:
    """Prints the JSON Schema. Raises RecipeError E1012 for any argument."""
    command_line.parse(arguments, "schema")
    print(reference.json_schema_text(), end="")
    return 0
