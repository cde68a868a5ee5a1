"""What the recipe knows of the format `metadata`."""

from __future__ import annotations

from mezzotint.recipe.formats.base import NO_CAPTION_SOURCE, FormatSpec

SPEC = FormatSpec(fixed=(NO_CAPTION_SOURCE,))
