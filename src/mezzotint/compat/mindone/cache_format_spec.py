"""What the recipe knows of the format `mindone-cache`: what another trainer has encoded can be kept in one way only,
which need not be written, and neither pictures nor captions can be changed any more."""

from __future__ import annotations

from mezzotint.settings.formats.base import NO_TABLES, Fixed, FormatSpec

SPEC = FormatSpec(
    is_encoded=True,
    usual={"cache": {"latents": True, "text": True, "content": "sample"}},
    fixed=(
        NO_TABLES,
        Fixed(
            ("cache.latents", "cache.text", "cache.content"),
            "data.format={name} holds one draw of each picture's latents, and text embeddings, which the "
            "cache takes over; leave out data.cache.latents, data.cache.text and data.cache.content, or write "
            "true, true and sample",
        ),
        Fixed(
            ("crop", "flip", "captions.dropout", "captions.prefix", "captions.trigger",
             "captions.template", "captions.shuffle_tags", "captions.tag_dropout",
             "captions.wildcards"),
            "data.format={name} holds pictures that are cut and captions that are chosen: leave out "
            "data.crop, data.flip, data.captions.dropout, data.captions.shuffle_tags and what else changes "
            "captions, or train from the pictures (data.format=mindone)",
        ),
    ),
)  # fmt: skip
