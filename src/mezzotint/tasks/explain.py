"""`mezzotint explain PATH|CODE …`: what a setting, a section or an error code means."""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.errors import RecipeError
from mezzotint.settings import reference
from mezzotint.settings.reading.nearest import search
from mezzotint.tasks.reading import command_line


def run(arguments: Sequence[str]) -> int:
    """Prints the explanation of each word, or search results for all words if one of them is unknown by itself. Raises
    RecipeError: E1012 without a word, E1013 for an unknown one."""
    plain = command_line.parse(arguments, "explain").plain
    is_phrase = len(plain) > 1 and not all(_code(word) or reference.explain_name(word) for word in plain)
    texts = map(explain_word, [" ".join(plain)] if is_phrase and search(" ".join(plain)) else plain)
    print("\n\n".join(texts))
    return 0


def explain_word(word: str) -> str:
    """The explanation of one word; an error code may be given by its digits. Raises RecipeError E1013, with the nearest
    setting."""
    code = _code(word)
    if not code:
        return reference.explain(word)
    text = reference.explain_code(code)
    if text is None:
        raise RecipeError(f"there is no error code {code}; codes are written like E1007", code="E1013")
    title, paragraph = text.split("\n")
    return f"{code}: {title}\n{reference.wrap_paragraph(paragraph)}"


def _code(word: str) -> str:
    """A word as an error code, "" if it is none."""
    digits = word.lstrip("Ee")
    return f"E{digits}" if digits.isdecimal() and len(word) - len(digits) < 2 else ""
