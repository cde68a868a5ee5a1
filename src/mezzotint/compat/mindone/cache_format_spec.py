"""Facts of the format `mindone-cache` for recipes: its content can be cached in one way only, which is the default, and
images and captions cannot be changed."""

from __future__ import annotations

from mezzotint.settings.formats.base import NO_TABLES, Fixed, FormatSpec

SPEC = FormatSpec(
    is_encoded=True,
    usual={"cache": {"latents": True, "text": True, "content": "sample"}},
    fixed=(
        NO_TABLES,
        Fixed(
            ("cache.latents", "cache.text", "cache.content"),
            "data.format={name} has one sample of each image's latents, and text embeddings, which the "
            "cache uses; leave out data.cache.latents, data.cache.text and data.cache.content, or write "
            "true, true and sample",
        ),
        Fixed(
            ("crop", "flip", "captions.dropout", "captions.prefix", "captions.trigger",
             "captions.template", "captions.shuffle_tags", "captions.tag_dropout",
             "captions.wildcards"),
            "data.format={name} has cropped images and fixed captions: leave out "
            "data.crop, data.flip, data.captions.dropout, data.captions.shuffle_tags and other settings of "
            "captions, or train from the images (data.format=mindone)",
        ),
    ),
)  # fmt: skip
