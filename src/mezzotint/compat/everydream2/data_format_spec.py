"""Facts of the format `everydream` for recipes."""

from __future__ import annotations

from mezzotint.settings.formats.base import NO_TABLES, Fixed, FormatSpec

SPEC = FormatSpec(
    reads_masks=True,
    fixed=(
        NO_TABLES,
        Fixed(
            ("captions.source", "captions.lines"),
            "data.captions.source and data.captions.lines have no effect with data.format={name}, which merges "
            "files and names by its own rules; leave them out, or set data.format=image-folder",
        ),
    ),
)
