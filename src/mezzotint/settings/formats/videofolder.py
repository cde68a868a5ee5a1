"""What a recipe needs to know of the format `videofolder`."""

from __future__ import annotations

from mezzotint.settings.formats.base import MASK_COLUMN, NO_PARTS, FormatSpec

SPEC = FormatSpec(has_clips=True, reads_masks=True, own_masks=MASK_COLUMN, fixed=(NO_PARTS,))
