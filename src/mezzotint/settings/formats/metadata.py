"""What a recipe needs to know of the format `metadata`."""

from __future__ import annotations

from mezzotint.settings.formats.base import MASK_COLUMN, NO_CAPTION_SOURCE, FormatSpec

SPEC = FormatSpec(
    own_conditions=True,
    has_columns=True,
    reads_masks=True,
    has_own_paths=True,
    own_masks=MASK_COLUMN,
    fixed=(NO_CAPTION_SOURCE,),
)
