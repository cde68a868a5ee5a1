"""`mezzotint explain PATH|CODE …`: what a setting, a section or an error code means."""

from __future__ import annotations

from collections.abc import Sequence

from mezzotint.errors import RecipeError
from mezzotint.settings import reference
from mezzotint.settings.reading.nearest import search
from mezzotint.tasks.reading import command_line


def run(arguments: Sequence[str]) -> int:
    """Prints the explanation of each term, or search results for all of them if one is unknown by itself. Raises
    RecipeError: E1012 without a term, E1013 for an unknown one."""
    plain = command_line.parse(arguments, "explain").plain
    is_phrase = len(plain) > 1 and not all(_code(term) or reference.explain_name(term) for term in plain)
    texts = map(explain_word, [" ".join(plain)] if is_phrase and search(" ".join(plain)) else plain)
    print("\n\n".join(texts))
    return 0


def explain_word(term: str) -> str:
    """The explanation of one term; an error code may be given by its digits. Raises RecipeError E1013, with the nearest
    setting."""
    code = _code(term)
    if not code:
        return reference.explain(term)
    text = reference.explain_code(code)
    if text is None:
        raise RecipeError(f"there is no error code {code}; codes are written like E1007", code="E1013")
    title, paragraph = text.split("\n")
    return f"{code}: {title}\n{reference.wrap_paragraph(paragraph)}"


def _code(term: str) -> str:
    """A term as an error code, "" if it is not one."""
    digits = term.lstrip("Ee")
    return f"E{digits}" if digits.isdecimal() and len(term) - len(digits) < 2 else ""
