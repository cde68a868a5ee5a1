"""Fixtures that record what whole runs do; see `support/journey_fixtures.py`."""

from __future__ import annotations

from support import journey_fixtures, trained_families

loaded = journey_fixtures.loaded
clips = trained_families.clips
