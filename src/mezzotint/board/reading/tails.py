"""Content of untrusted run files, made safe to show: the end of a log of any length, printable text, and numbers."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from mezzotint import outside

TAIL = 64_000
"""Default number of bytes at the end of a log."""
_MOST = 2**53
"""The largest count: float64 and JavaScript hold every integer up to it."""


def tail(path: Path, *, limit: int = TAIL, within: Path | None = None) -> str:
    """The last complete lines of a file, at most `limit` bytes; "" if there is no file, or if a link leads to it out of
    `within`, by default the file's folder. The text is `make_printable`."""
    try:
        block = outside.read_tail(path, limit=limit, within=within or path.parent)
    except OSError:
        return ""
    return make_printable(block.decode("utf-8", "replace"))


def make_printable(text: str) -> str:
    """Text with escapes for unprintable characters, such as terminal control codes and changes of text direction."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else _escape(sign) for sign in text)


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape").decode("ascii") if sign != "\r" else "\n"


def to_count(value: Any) -> int | None:
    """An integer from 0 to 2⁵³; None for anything else."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value if is_whole and 0 <= value <= _MOST else None


def to_number(value: Any) -> float | None:
    """A number as float; the files contain non-finite ones as text. None for anything else, and for integers too large
    for a float."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return None
    return float(value) if isinstance(value, str) and value in ("nan", "inf", "-inf") else None


def to_amount(value: Any) -> float:
    """A finite number below 2⁵³, for sums; 0 for anything else."""
    number = to_number(value)
    return number if number is not None and math.isfinite(number) and abs(number) < _MOST else 0.0
