"""What a recipe needs to know of the format `kohya`: kohya's scripts read the first line of a caption file."""

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
            "data.captions.source has no effect with data.format={name}, which takes captions of images without a "
            "file from the folder's name; leave it out, or set data.format=image-folder",
        ),
    ),
)
