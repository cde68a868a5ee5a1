"""Wildcards of captions: one of `{a|b}` is taken at each visit."""

from __future__ import annotations

import re
from collections.abc import Callable


def filled(caption: str, choose: Callable[[int, int], int]) -> str:
    """A caption with one of each `{a|b}`. choose: which of so many (its second argument), for the wildcard of a number
    (its first, from 0). `{{` and `}}` become braces; `{}` stays."""
    text = caption.replace("{{", "\0<").replace("}}", "\0>")  # no caption holds NUL
    numbers = iter(range(len(text)))

    def one(match: re.Match[str]) -> str:
        among = match[1].split("|")
        return among[choose(next(numbers), len(among))]

    return re.sub(r"\{([^}]+)\}", one, text).replace("\0<", "{").replace("\0>", "}")


def first_of_each(caption: str) -> str:
    """A caption where nothing is drawn: the first of each wildcard."""
    return filled(caption, lambda number, count: 0)
