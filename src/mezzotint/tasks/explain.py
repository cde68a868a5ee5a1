"""`mezzotint explain PATH|CODE …`: what a setting, a section or an error code means."""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.errors import RecipeError, explain_code
from mezzotint.recipe import reference
from mezzotint.recipe.reading.paths import one_line
from mezzotint.tasks.reading import words


def run(arguments: Sequence[str]) -> int:
    """Prints the explanation of each word. Raises RecipeError: E1012 without a word, E1013 for an unknown one."""
    print("\n\n".join(explained(word) for word in words.parse(arguments, "explain").plain))
    return 0


def explained(word: str) -> str:
    """The text for one word; of a code the digits are enough. Raises RecipeError E1013, with the nearest setting."""
    digits = word.lstrip("Ee")
    if not (digits.isdecimal() and len(word) - len(digits) < 2):
        return reference.explain(word)
    code = f"E{digits}"
    text = explain_code(code)
    if text is None:
        raise RecipeError(f"there is no error code {code}; codes are written like E1007", code="E1013")
    return f"{code}\n{reference.wrapped(one_line(text))}"
