"""What the recipe knows of the format `clip-list`."""

from __future__ import annotations

from mezzotint.recipe.formats.base import NO_CAPTION_SOURCE, NO_TABLES, FormatSpec

SPEC = FormatSpec(
    has_clips=True, reads_texts=True, own_masks="the key 'mask' of an annotation, a file below the media folder",
    stills_format="clip-list", fixed=(NO_TABLES, NO_CAPTION_SOURCE),
)  # fmt: skip
