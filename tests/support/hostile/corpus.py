"""The whole corpus."""

from __future__ import annotations

from support.hostile import adapters, data_sets, models, pictures, runs, texts, trainers
from support.hostile.entry import Entry

ENTRIES: tuple[Entry, ...] = (
    *pictures.ENTRIES, *texts.ENTRIES, *data_sets.ENTRIES, *models.ENTRIES, *adapters.ENTRIES, *runs.ENTRIES,
    *(entry for trainer in trainers.modules() for entry in trainer.ENTRIES),
)  # fmt: skip
