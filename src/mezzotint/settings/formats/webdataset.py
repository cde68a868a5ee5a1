"""What the recipe knows of the format `webdataset`."""

from __future__ import annotations

from mezzotint.settings.formats.base import NO_CAPTION_SOURCE, NO_PARTS, Fixed, FormatSpec

SPEC = FormatSpec(
    has_own_paths=True,
    own_masks="members KEY.mask.png of its shards",
    fixed=(
        NO_PARTS,
        Fixed(
            ("columns.image",),
            "data.columns.image has no effect with data.format={name}, where a picture is recognised by its ending; "
            "leave it out",
        ),
        NO_CAPTION_SOURCE,
    ),
)
