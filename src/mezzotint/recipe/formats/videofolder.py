"""What the recipe knows of the format `videofolder`."""

from __future__ import annotations

from mezzotint.recipe.formats.base import NO_PARTS, FormatSpec

SPEC = FormatSpec(has_clips=True, fixed=(NO_PARTS,))
