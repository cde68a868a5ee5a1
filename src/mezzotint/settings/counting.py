"""Numbers, sizes, durations and lists as text: for messages, tables and the board."""

from __future__ import annotations

from collections.abc import Sequence


def format_count(number: int, noun: str) -> str:
    """`1 batch`, `1,200 batches`: a number with its noun, given in the singular."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith(("entry", "copy")):
        return f"{number:,} {noun.removesuffix('y')}ies"
    return f"{number:,} {noun}{'es' if noun.endswith(('tch', 'ss')) else 's'}"


def format_names(names: Sequence[str], most: int, *, separator: str = ", ") -> str:
    """`a, b and 3 more`: the first names of many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return separator.join(names[:most]) + more


def format_bytes(num_bytes: float) -> str:
    """`3.44 GB`: a number of bytes, with GB = 10⁹ bytes."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= scale:
            amount = num_bytes / scale
            return f"{amount:.3g} {unit}" if amount < 999.5 else f"{amount:,.0f} {unit}"
    return f"{num_bytes:.0f} B"


def format_duration(seconds: float) -> str:
    """`2 d 3 h`, `2 h 13 min`, `4 min 10 s`, `12.3 s`, `0.31 s`."""
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours_of_day = divmod(hours, 24)
    if days:
        return f"{days:,} d {hours_of_day} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def nearest_multiples(number: int, step: int) -> str:
    """`write 64 or 72`: the multiples of a step below and above a number that is not a multiple."""
    below = number // step * step
    return f"write {below} or {below + step}" if below > 0 else f"write {step}"
