"""Fills the text cache with the texts of previews, for text encoders that see condition images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np

from mezzotint.data.cache.entries import TextCache
from mezzotint.data.cache.text_rows import layout_of
from mezzotint.families.base import ModelFamily
from mezzotint.sampling.requests import Request
from mezzotint.stages import TextEmbedding
from mezzotint.tasks.cache._encoding import Encoding


def fill(
    text: TextCache, requests: Sequence[Request], count: int, *, load: Callable[[], ModelFamily], encoding: Encoding
) -> int:
    """Stores the missing embeddings of prompts and negative prompts with their images. count: of images, as in the
    training data; requests with another number are left out, because their embeddings have other lengths. load: the
    family with its text encoder, called only if something is missing. Returns the number of stored embeddings."""
    needed = {
        text.address(caption, images=request.images_hash): (caption, request.whole_images)
        for request in requests
        for caption in (request.prompt, request.negative)
        if len(request.whole_images) == count
    }
    rows = text.rows()
    absent = {key: one for key, one in needed.items() if rows is None or not rows.has([key], checks=True)[0]}
    if not absent:
        return 0
    family = load()

    def encode(key: bytes) -> TextEmbedding:
        return encoding.text_with_images_of(family, *absent[key])

    try:
        with closing(encoding.run(encode, absent, at_once=4, layer_streamer=family.layer_streamer)) as encoded:
            for key, embedding in encoded:
                text.define(layout_of(embedding))
                rows = text.rows()
                assert rows is not None
                address, names = np.frombuffer(key, np.uint8)[None], [f"the caption {absent[key][0]!r}"]
                rows.append(address, embedding, names=names, at_once=False)
    finally:
        for store in text.stores:
            store.close_writer()
    return len(absent)
