"""What the rows share; see `support/effect_fixtures.py`."""

from __future__ import annotations

from support import effect_fixtures

_process_as_it_was = effect_fixtures._process_as_it_was
without_fsync = effect_fixtures.without_fsync
prepare, feed, noisy = effect_fixtures.prepare, effect_fixtures.feed, effect_fixtures.noisy
