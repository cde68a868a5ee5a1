"""What the rows share; see `support/effect_fixtures.py`."""

from __future__ import annotations

from support import effect_fixtures

restore_process_state = effect_fixtures.restore_process_state
fast_start = effect_fixtures.fast_start
prepare, feed, noisy = effect_fixtures.prepare, effect_fixtures.feed, effect_fixtures.noisy
