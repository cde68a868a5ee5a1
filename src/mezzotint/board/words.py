"""Numbers and names as the page writes them; the point is the decimal sign, whatever the browser's language."""

from __future__ import annotations

import re
import time

from markupsafe import Markup, escape

from mezzotint.board.reading import tails
from mezzotint.settings import counting

_FORM = "%Y-%m-%dT%H:%M:%SZ"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def duration(seconds: float | None) -> str:
    """As `counting.duration`; "" for none, and for centuries."""
    return counting.duration(seconds) if seconds is not None and abs(seconds) < 1e10 else ""


def number(value: float | None, digits: int = 4) -> str:
    """A number of so many digits; "" for none, `nan` and `inf` as they are."""
    return "" if value is None else f"{value:.{digits}g}"


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
