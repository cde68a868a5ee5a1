"""The whole corpus."""

from __future__ import annotations

from support.hostile import adapters, data_sets, images, models, runs, texts, trainers
from support.hostile.entry import Entry

ENTRIES: tuple[Entry, ...] = (
    *images.ENTRIES, *texts.ENTRIES, *data_sets.ENTRIES, *models.ENTRIES, *adapters.ENTRIES, *runs.ENTRIES,
    *(entry for trainer in trainers.modules() for entry in trainer.ENTRIES),
)  # fmt: skip
