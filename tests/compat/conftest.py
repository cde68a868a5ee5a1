"""Foreign commands read settings files by default names: every test of them starts in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import effect_fixtures, journey_fixtures

loaded = journey_fixtures.loaded
prepare, feed, noisy = effect_fixtures.prepare, effect_fixtures.feed, effect_fixtures.noisy


@pytest.fixture(autouse=True)
def _nothing_lies_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
