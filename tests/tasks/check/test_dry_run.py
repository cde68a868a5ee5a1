"""The dry run of `check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.tasks.check import page as _check_page
from support.check_command import checked, everything_below


@pytest.mark.slow
def test_dry_run_trains_two_steps_and_leaves_no_files(ready: Path) -> None:
    before = everything_below(ready)
    outcome = checked("data.cache.latents=true", "data.cache.text=true", dry=True)
    assert not outcome.problems
    assert outcome.dry is not None
    assert len(outcome.dry.seconds) == 2
    assert outcome.dry.samples in (1, 2)
    assert outcome.dry.seconds_a_step > 0
    assert outcome.dry.samples_a_second == pytest.approx(outcome.dry.samples / outcome.dry.seconds[-1])
    assert any("a step on cpu" in line for line in _check_page.page(outcome))
    new = everything_below(ready) - before
    assert all(name == "cache" or name.startswith("cache/catalogues") for name in new)
