"""Numbers with their nouns, as sentences have them."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 batch`, `1,200 batches`: a number with its noun, given in the singular."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("entry"):
        return f"{number:,} {noun.removesuffix('y')}ies"
    return f"{number:,} {noun}{'es' if noun.endswith(('tch', 'ss')) else 's'}"
