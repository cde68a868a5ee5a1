"""Patterns of parameter names in a recipe (`model.freeze`, `no_decay`): with `*` and `?`, and after `~` those that may
match nothing, as lists have that are written for several models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

MAY_BE_IDLE = "~"
"""Before a pattern: it may match nothing."""


def bare(pattern: str) -> str:
    """The pattern without the sign before it."""
    return pattern.removeprefix(MAY_BE_IDLE)


def idle(patterns: Iterable[str], names: Sequence[str]) -> list[str]:
    """Those that may match nothing and do, without their sign. names: of all parameters that they are held against."""
    lenient = [bare(one) for one in patterns if one.startswith(MAY_BE_IDLE)]
    return [one for one in lenient if not any(fnmatchcase(name, one.removeprefix("!")) for name in names)]
