"""What the recipe knows of the format `kohya`: of a caption file, kohya's scripts read the first line."""

from __future__ import annotations

from mezzotint.settings.formats.base import NO_TABLES, Fixed, FormatSpec

SPEC = FormatSpec(
    reads_masks=True,
    has_folder_words=True,
    usual={"captions": {"lines": "first"}},
    fixed=(
        NO_TABLES,
        Fixed(
            ("captions.source",),
            "data.captions.source has no effect with data.format={name}, where the folder's words are the caption "
            "of pictures without a file; leave it out, or set data.format=image-folder",
        ),
    ),
)
