"""Numbers with their nouns, and long lists, as sentences have them."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """`1 batch`, `1,200 batches`: a number with its noun, given in the singular."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith(("entry", "copy")):
        return f"{number:,} {noun.removesuffix('y')}ies"
    return f"{number:,} {noun}{'es' if noun.endswith(('tch', 'ss')) else 's'}"


def listed(names: Sequence[str], most: int, *, separator: str = ", ") -> str:
    """`a, b and 3 more`: the first names of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def nearest_multiples(number: int, step: int) -> str:
    """`write 64 or 72`: the multiples of a step below and above a number that is none."""
    below = number // step * step
    return f"write {below} or {below + step}" if below > 0 else f"write {step}"
