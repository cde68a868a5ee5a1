"""Caches of latents and text embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from mezzotint.settings.base import ALLOW, FREE, OutputPath, Section


class CacheSettings(Section):
    """Latents and text embeddings are encoded once and stored on disk, under a key made of everything they depend
    on."""

    latents: Annotated[bool, ALLOW] = False
    """Encode images once and train from the stored latents; the run then loads no VAE. An entry is encoded again when
    the image, its crop, the preprocessing or the VAE changes."""

    text: Annotated[bool, ALLOW] = False
    """Encode captions once; the run then loads no text encoder. Refused when the text encoder is trained."""

    encoders: Annotated[Literal["auto", "whole", "layers"], FREE] = "auto"
    """How text encoders are loaded to fill the cache. `whole`: at once. `layers`: one group of layers at a time, each
    applied to all captions before the next is loaded, so an encoder of any size needs about a gigabyte. `auto`: by
    `layers` when the whole encoder does not fit into free memory. The embeddings are bitwise identical."""

    path: Annotated[OutputPath, FREE] = Path("~/.cache/mezzotint")
    """The folder of caches and data indexes. Runs and processes may share it; deleting it costs only time. An object
    storage address (`s3://bucket/cache`; extra `object-storage`) is filled through a local folder, uploaded shard by
    shard, and read row by row."""

    fetched_gb: Annotated[PositiveFloat, FREE] = 50.0
    """With data or a cache on object storage (`s3://…`): how many gigabytes (10⁹ bytes) of downloaded data are kept on
    this machine. The least recently used go first."""

    content: Annotated[Literal["moments", "sample"], ALLOW] = "moments"
    """`moments` stores mean and standard deviation of the latent posterior, so each visit draws a new sample, as
    without a cache. `sample` stores one sample, at half the size."""

    dtype: Annotated[Literal["fp32", "fp16", "bf16"], ALLOW] = "fp32"
    """The number type of cached values. fp16 halves the files; latents and embeddings are rounded once."""

    crops: Annotated[int, Field(gt=0, le=10**4), ALLOW] = 1
    """With random crops or flips: how many crops of each image are drawn and cached. Every visit uses one of them."""

    shuffles: Annotated[int, Field(gt=0, le=10**4), ALLOW] = 1
    """With cached text and random captions (`captions.shuffle_tags`, `tag_dropout`, `wildcards`): how many variants of
    each caption are drawn and cached. Every visit uses one of them."""
