"""What a recipe needs to know of the format `image-folder`."""

from __future__ import annotations

from mezzotint.settings.formats.base import NO_TABLES, FormatSpec

SPEC = FormatSpec(reads_masks=True, takes_generated=True, hints_at_repeats=True, fixed=(NO_TABLES,))
