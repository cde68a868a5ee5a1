"""Numbers and names as the page writes them; the point is the decimal sign, whatever the browser's language."""

from __future__ import annotations

import math
import re
import time

from markupsafe import Markup, escape

from mezzotint.board.reading import tails

_FORM = "%Y-%m-%dT%H:%M:%SZ"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


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


def moment(value: float | str, *, in_seconds: bool = False) -> Markup:
    """A time, of seconds since 1970 or as `2026-03-01T10:00:00Z`, to the minute or the second. It is written in UTC;
    the page shows it in its reader's zone. A text that is no time stays as it is; "" for a time that no calendar
    has."""
    try:
        text = time.strftime(_FORM, time.gmtime(value)) if isinstance(value, float) and value else str(value or "")
    except (OverflowError, ValueError, OSError):
        return Markup("")
    if not _MOMENT.fullmatch(text):
        return escape(tails.shown(text))
    short = text[:19] if in_seconds else text[:16]
    return Markup('<time datetime="{}">{} UTC</time>').format(text, short.replace("T", " "))


def with_moments(text: str) -> Markup:
    """A text with the times in it as `moment`, each written as it is."""
    parts = _MOMENT.split(text)
    times = [Markup('<time datetime="{0}">{0}</time>').format(one) for one in _MOMENT.findall(text)]
    return Markup("").join(escape(part) + one for part, one in zip(parts, [*times, ""], strict=True))


def whole(text: str, usual: int = 0) -> int:
    """A whole number as an address has it; `usual` for anything else, and for one of more than nine digits."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else usual


def count(value: int | None) -> str:
    """`12,000`."""
    return "" if value is None else f"{value:,}"
