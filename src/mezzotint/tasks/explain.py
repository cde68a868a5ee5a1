"""`mezzotint explain PATH|CODE …`: what a setting, a section or an error code means."""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.errors import CODES, RecipeError, did_you_mean, explain_code
from mezzotint.recipe import reference
from mezzotint.recipe.reading.paths import one_line
from mezzotint.tasks.reading import words


def run(arguments: Sequence[str]) -> int:
    """Prints the explanation of each word. Raises RecipeError: E1012 without a word, E1013 for an unknown one."""
    print("\n\n".join(explained(word) for word in words.parse(arguments, "explain").plain))
    return 0


def explained(word: str) -> str:
    """The text for one word. Raises RecipeError E1013 with the nearest known one."""
    looks_like_code = len(word) > 1 and word[0] in "Ee" and word[1:].isdigit()
    if not looks_like_code:
        return reference.explain(word)
    text = explain_code(word)
    if text is None:
        hint = did_you_mean(word.upper(), CODES, "codes are written like E1007")
        raise RecipeError(f"there is no error code {word}; {hint}", code="E1013")
    return f"{word.upper()}\n{reference.wrapped(one_line(text))}"
