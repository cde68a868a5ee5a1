"""Numbers from a run's files, which may hold anything under a name where a number belongs."""

from __future__ import annotations

import math
from typing import Any

_MOST = 2**53
"""The largest count: a float64 and JavaScript hold every whole number up to it."""


def to_count(value: Any) -> int | None:
    """A whole number from 0 to 2⁵³; None for anything else."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and 0 <= value <= _MOST else None


def to_number(value: Any) -> float | None:
    """A number; not finite ones stand in the files as texts. None for anything else, and for what no float holds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return None
    return float(value) if isinstance(value, str) and value in ("nan", "inf", "-inf") else None


def to_amount(value: Any) -> float:
    """A finite number that can be added up; 0 for anything else."""
    number = to_number(value)
    return number if number is not None and math.isfinite(number) and abs(number) < _MOST else 0.0
