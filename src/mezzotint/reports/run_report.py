"""Skeleton: being written. The signatures stand."""

from __future__ import annotations

from pathlib import Path

from mezzotint.run_folder import RunFolder


def run_report(folder: RunFolder) -> tuple[Path, ...]:
    """Writes logs/loss.png and logs/report.txt; returns what was written."""
    raise NotImplementedError


def summary(folder: RunFolder) -> tuple[str, ...]:
    """The text of logs/report.txt, line by line."""
    raise NotImplementedError
