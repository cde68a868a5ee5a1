"""Imports latents and texts that another program has encoded (`data/files/encoded.py`) into a cache. Only the model's
scaling of latents is computed. `filling.py` uses this instead of the encoders.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from mezzotint import fault_injection
from mezzotint.data.cache.entries import LatentCache, LatentLayout, TextCache
from mezzotint.data.cache.text_rows import layout_of
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.files import encoded
from mezzotint.data.files.encoded import EncodedFiles, EncodedSample
from mezzotint.errors import CacheError, WeightsError
from mezzotint.stages import TextEmbedding
from mezzotint.tasks.cache.inventory import LatentEntries, TextEntries
from mezzotint.weights.model_files import EncodedSpec

_AT_ONCE = 16
AGE = "which cannot be checked: the files do not record which autoencoder, encoders and captions they are from"
"""The caveat in messages about the files."""


def require_encoded(spec: EncodedSpec | None) -> EncodedSpec:
    """The shapes that the model accepts. Raises WeightsError E1409 for a family that cannot import any."""
    if spec is None:
        raise WeightsError(
            "the data set contains encoded latents and texts, which models of this model.family cannot use; set "
            "model.family=sdxl, or train from images",
            code="E1409",
        )
    return spec


def latents(
    catalogue: Catalogue, cache: LatentCache, needed: LatentEntries, entries: NDArray[np.int64], spec: EncodedSpec
) -> None:
    """Stores the latents of some entries, scaled for the denoiser. Raises CacheError E1371 for latents of another size
    than their bucket, or of another number of channels."""
    if not len(entries):
        return
    pixels = _files_of(catalogue, int(needed.rows[entries[0]])).PIXELS
    cache.define(LatentLayout(spec.channels, pixels, 0))
    store = cache.store(needed.bucket)
    assert store is not None
    for chunk in _chunks(entries):
        fault_injection.reach("cache.encode")
        rows, names = [], []
        for row in needed.rows[chunk].tolist():
            _require_bucket(catalogue, row, needed)
            array = _read(catalogue, row).latents
            if array.shape[0] != spec.channels:
                raise CacheError(
                    f"{catalogue.path(row)}: its latents have {array.shape[0]} channels, the model's have "
                    f"{spec.channels}; they are of another model",
                    code="E1371",
                )
            rows.append((array - spec.shift) * spec.factor)
            names.append(str(catalogue.path(row)))
        store.append(needed.addresses[chunk], torch.from_numpy(np.stack(rows)), names=names, at_once=False)


def _require_bucket(catalogue: Catalogue, row: int, needed: LatentEntries) -> None:
    width, height = int(catalogue.width[row]), int(catalogue.height[row])
    if (width, height) == (needed.bucket.width, needed.bucket.height):
        return
    sizes = sorted(set(zip(catalogue.height.tolist(), catalogue.width.tolist(), strict=True)))
    shown = ", ".join(f"[{h}, {w}]" for h, w in sizes[:40])
    raise CacheError(
        f"{catalogue.path(row)}: latents of {height}×{width} pixels (height first), and no bucket has this size; set "
        f"data.buckets.shape=list data.buckets.sizes='[{shown}]'",
        code="E1371",
    )


def texts(
    catalogue: Catalogue, cache: TextCache, needed: TextEntries, entries: NDArray[np.int64], spec: EncodedSpec
) -> None:
    """Stores the embeddings of some entries, each from its row. Raises CacheError E1371 for embeddings of another shape
    than the model's text."""
    for chunk in _chunks(entries):
        fault_injection.reach("cache.encode")
        files = [_read(catalogue, row) for row in needed.rows[chunk].tolist()]
        for row, entry in zip(needed.rows[chunk].tolist(), files, strict=True):
            shape = (*entry.states.shape, *entry.pooled.shape)
            if shape != (spec.length, spec.width, spec.pooled):
                raise CacheError(
                    f"{catalogue.path(row)}: its text has {shape[0]} tokens of {shape[1]} and {shape[2]} pooled, the "
                    f"model's {spec.length} of {spec.width} and {spec.pooled}; it is of another model",
                    code="E1371",
                )
        states = torch.from_numpy(np.stack([entry.states for entry in files]))
        embedding = TextEmbedding(states, pooled=torch.from_numpy(np.stack([entry.pooled for entry in files])))
        cache.define(layout_of(embedding))
        stored = cache.rows()
        assert stored is not None
        names = [str(catalogue.path(row)) for row in needed.rows[chunk].tolist()]
        stored.append(needed.addresses[chunk], embedding, names=names, at_once=False)


def _files_of(catalogue: Catalogue, row: int) -> EncodedFiles:
    files = encoded.files_of(catalogue.path(row))
    assert files is not None, catalogue.path(row)
    return files


def _read(catalogue: Catalogue, row: int) -> EncodedSample:
    return _files_of(catalogue, row).read(catalogue.path(row))


def _chunks(entries: NDArray[np.int64]) -> Sequence[NDArray[np.int64]]:
    return [entries[i : i + _AT_ONCE] for i in range(0, len(entries), _AT_ONCE)]
