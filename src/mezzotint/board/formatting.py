"""Numbers, times and counts as the page shows them. The decimal separator is a point in every browser language."""

from __future__ import annotations

import math
import re
import time

from markupsafe import Markup, escape

from mezzotint.board.reading import tails
from mezzotint.settings import counting

_FORM = "%Y-%m-%dT%H:%M:%SZ"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def format_duration(seconds: float | None) -> str:
    """As `counting.format_duration`; "" for None and for values of 1e10 s and more."""
    return counting.format_duration(seconds) if seconds is not None and abs(seconds) < 1e10 else ""


def format_number(value: float | None, digits: int = 4) -> str:
    """A number with `digits` significant digits; "" for None, `nan` and `inf` unchanged."""
    return "" if value is None else f"{value:.{digits}g}"


def keep_finite(value: float | None) -> float | None:
    """The value; None for one that JSON cannot hold."""
    return value if value is not None and math.isfinite(value) else None


def format_moment(value: float | str, *, in_seconds: bool = False) -> Markup:
    """A `<time>` element, to the minute or the second. value: seconds since 1970, or text like `2026-03-01T10:00:00Z`.
    It is written in UTC; the page's script converts it to the viewer's time zone. Other text is returned as it is; ""
    for a time outside of the calendar."""
    try:
        text = time.strftime(_FORM, time.gmtime(value)) if isinstance(value, float) and value else str(value or "")
    except (OverflowError, ValueError, OSError):
        return Markup("")
    if not _MOMENT.fullmatch(text):
        return escape(tails.make_printable(text))
    short = text[:19] if in_seconds else text[:16]
    return Markup('<time datetime="{}">{} UTC</time>').format(text, short.replace("T", " "))


def mark_moments(text: str) -> Markup:
    """A text in which each time is a `<time>` element with its original text."""
    parts = _MOMENT.split(text)
    times = [Markup('<time datetime="{0}">{0}</time>').format(time_text) for time_text in _MOMENT.findall(text)]
    return Markup("").join(escape(part) + one for part, one in zip(parts, [*times, ""], strict=True))


def parse_whole(text: str, default: int = 0) -> int:
    """The integer of a query parameter; `default` for anything else, and for more than nine digits."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else default


def format_count(value: int | None) -> str:
    """`12,000`."""
    return "" if value is None else f"{value:,}"
