"""What the recipe knows of the format `everydream`."""

from __future__ import annotations

from mezzotint.settings.formats.base import NO_TABLES, Fixed, FormatSpec

SPEC = FormatSpec(
    reads_masks=True,
    fixed=(
        NO_TABLES,
        Fixed(
            ("captions.source", "captions.lines"),
            "data.captions.source and data.captions.lines have no effect with data.format={name}, which merges "
            "files and names by rules of its own; leave them out, or set data.format=image-folder",
        ),
    ),
)
