"""What the rows share; see `support/effect_fixtures.py`."""

from __future__ import annotations

from support import effect_fixtures

_process_as_it_was = effect_fixtures._process_as_it_was
fast_start = effect_fixtures.fast_start
prepare, feed, noisy = effect_fixtures.prepare, effect_fixtures.feed, effect_fixtures.noisy
