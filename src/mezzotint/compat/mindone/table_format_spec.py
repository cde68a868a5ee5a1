"""Facts of the format `mindone` for recipes."""

from __future__ import annotations

from mezzotint.settings.formats.base import NO_CAPTION_SOURCE, NO_TABLES, FormatSpec

SPEC = FormatSpec(reads_masks=True, fixed=(NO_TABLES, NO_CAPTION_SOURCE))
