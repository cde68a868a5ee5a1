"""What a run's files hold, made safe to show: the end of a log of any length, and numbers, where anything may be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from mezzotint import outside

TAIL = 64_000
"""Bytes from the end."""
_MOST = 2**53
"""The largest count: a float64 and JavaScript hold every whole number up to it."""


def tail(path: Path, *, limit: int = TAIL, within: Path | None = None) -> str:
    """The last whole lines of a file, at most `limit` bytes of them; "" without one, and for one that a link leads to
    outside of `within`, by default the file's folder. Signs that steer a terminal, and
    those that turn the direction of text, are shown as escapes."""
    try:
        with outside.open_plain(path, within=within or path.parent) as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - limit))
            block = file.read(limit)
    except OSError:
        return ""
    if size > limit:
        block = block[block.find(b"\n") + 1 :]
    return shown(block.decode("utf-8", "replace"))


def shown(text: str) -> str:
    """Text whose every sign is seen."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii") if sign != "\r" else "\n"


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
