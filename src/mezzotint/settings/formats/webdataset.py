"""What a recipe needs to know of the format `webdataset`."""

from __future__ import annotations

from mezzotint.settings.formats.base import NO_CAPTION_SOURCE, NO_PARTS, Fixed, FormatSpec

SPEC = FormatSpec(
    has_own_paths=True,
    own_conditions=True,
    own_masks="members KEY.mask.png of its shards",
    fixed=(
        NO_PARTS,
        Fixed(
            ("columns.image",),
            "data.columns.image has no effect with data.format={name}, which recognises images by their extension; "
            "leave it out",
        ),
        NO_CAPTION_SOURCE,
    ),
)
