"""Numbers and names as the page writes them; the point is the decimal sign, whatever the browser's language."""

from __future__ import annotations

import math
import re
import time


def size(count: float) -> str:
    """Bytes: `45.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration(seconds: float | None) -> str:
    """`2 h 05 min`, `3 min 20 s`, `12 s`; "" for none, and for centuries."""
    if seconds is None or not abs(seconds) < 1e10:
        return ""
    whole = round(seconds)
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def number(value: float | None, digits: int = 4) -> str:
    """A number of so many digits; "" for none, `nan` and `inf` as they are."""
    if value is None:
        return ""
    return f"{value:.{digits}g}" if math.isfinite(value) else str(value)


def moment(seconds: float) -> str:
    """A time in UTC, to the minute; "" for none, and for one that no calendar has."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds)) if seconds else ""
    except (OverflowError, ValueError, OSError):
        return ""


def whole(text: str, usual: int = 0) -> int:
    """A whole number as an address has it; `usual` for anything else, and for one of more than nine digits."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else usual


def count(value: int | None) -> str:
    """`12,000`."""
    return "" if value is None else f"{value:,}"
