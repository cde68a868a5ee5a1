"""The whole corpus."""

from __future__ import annotations

from hostile import adapters, data_sets, models, pictures, runs, texts
from hostile.entry import Entry

ENTRIES: tuple[Entry, ...] = (
    *pictures.ENTRIES, *texts.ENTRIES, *data_sets.ENTRIES, *models.ENTRIES, *adapters.ENTRIES, *runs.ENTRIES,
)  # fmt: skip
