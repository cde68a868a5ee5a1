"""Values that follow from options of any trainer: steps of bucket sizes, run names, texts about group sizes."""

from __future__ import annotations

import re

from mezzotint.compat.kit.setting_files import file_name


def bucket_step(side: int) -> int:
    """The largest step of bucket sizes that divides a side."""
    return next((step for step in (64, 32, 16) if side % step == 0), 8)


def explain_divisor(size: int, processes: int) -> tuple[str, str]:
    """(problem, remedy) of a group size that does not divide the number of processes."""
    fitting = ", ".join(str(n) for n in range(1, processes + 1) if processes % n == 0)
    return f"is {size}, which does not divide the {processes} processes", f"write one of {fitting}"


def safe_name(text: str) -> str:
    """A valid run name from any text."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:100] or "run"


def run_name(folder: str) -> str:
    """A run name from the path of a folder."""
    return safe_name(file_name(folder.rstrip("/\\")))
