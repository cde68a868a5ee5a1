"""Settings files that change during a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mezzotint import outside
from mezzotint.settings import recipe
from mezzotint.tasks.train import live_settings


def write_before_each_epoch(monkeypatch: pytest.MonkeyPatch, write: Callable[[int], object]) -> None:
    """Calls a function with the number of an epoch before the live settings of that epoch are read."""
    begin = live_settings.LiveSettings.begin

    def write_and_begin(self: live_settings.LiveSettings, epoch: int) -> bool:
        write(epoch)
        return begin(self, epoch)

    monkeypatch.setattr(live_settings.LiveSettings, "begin", write_and_begin)


def make_unchangeable(monkeypatch: pytest.MonkeyPatch, *settings: str) -> None:
    """Takes settings from those that may change during a run, as in an earlier version."""
    kept = tuple(path for path in recipe.LIVE if path not in settings)
    for module in (recipe, live_settings):
        monkeypatch.setattr(module, "LIVE", kept)


def recorded_events(run: Path) -> list[dict[str, Any]]:
    """The live settings of each epoch in the history of a run folder."""
    return [e for e in outside.read_lines(run / "history.jsonl") if e["event"] == live_settings.EVENT]
