"""Filling a cache of six small images with an encoder that is a formula."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from mezzotint import draws
from mezzotint.data.cache.entries import Caches, LatentCache, TextCache
from mezzotint.data.catalogue import catalogue as catalogues
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.diffusion import noise
from mezzotint.families.base import Encodes, ModelFamily
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import TextEmbedding
from mezzotint.tasks.cache.filling import CacheSummary, Worker, fill

SIZES = [(32, 32), (40, 40), (64, 32), (32, 64), (48, 40), (33, 50)]


@dataclass
class Encoder:
    """A family that encodes by a formula and counts. It stands for a model where only the bookkeeping is looked at."""

    part: Encodes
    images: int = 0
    captions: list[str] = field(default_factory=list)
    spoil: Callable[[Tensor], Tensor] = lambda moments: moments
    layer_streamer: None = None
    animates = False
    largest: int = 0
    """Images or captions of a batch, at most."""

    def parts(self) -> dict[str, nn.Module]:
        return {}

    def encode_media(self, pixels: Tensor) -> Tensor:
        assert self.part == "media"
        self.images += len(pixels)
        self.largest = max(self.largest, len(pixels))
        mean = nn.functional.avg_pool2d(pixels, 8)
        return self.spoil(torch.cat([mean, mean.abs() + 0.1], dim=1))

    def encode_text(self, captions: Sequence[str]) -> TextEmbedding:
        assert self.part == "text"
        self.captions += captions
        self.largest = max(self.largest, len(captions))
        keys = torch.tensor([draws.text_key(c) >> 1 for c in captions])
        return TextEmbedding(noise.normal(keys, (4, 3)))


def write_images(folder: Path, sizes: Sequence[tuple[int, int]] = SIZES) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for i, size in enumerate(sizes):
        paint(folder / f"{i}.png", size, i)
        (folder / f"{i}.txt").write_text(f"image {i}")
    return folder


def paint(path: Path, size: tuple[int, int], seed: int) -> None:
    rng = np.random.Generator(np.random.Philox(key=seed))
    Image.fromarray(rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(path)


def data(root: Path, **changes: Any) -> DataSettings:
    caching = {"latents": True, "text": True, "path": root / "cache"} | changes.pop("cache", {})
    plain = {"path": [root / "images"], "resolution": 32, "buckets": {"step": 8}, "batch_size": 2, "workers": 0}
    return DataSettings.model_validate(plain | {"cache": caching} | changes)


@dataclass
class Filled:
    summary: CacheSummary
    encoders: list[Encoder]
    catalogue: Catalogue
    latents: LatentCache
    text: TextCache
    said: list[str]

    @property
    def images(self) -> int:
        return sum(e.images for e in self.encoders)

    @property
    def captions(self) -> list[str]:
        """Those that were encoded; a batch that was filled up repeats its last."""
        return sorted({c for e in self.encoders for c in e.captions})


def filled(
    root: Path, settings: DataSettings | None = None, *, vae: str = "vae", encoder: str = "clip", **changes: Any
) -> Filled:
    """One filling from files to stores, as a verb does it."""
    settings = settings or data(root)
    catalogue = catalogues.build(settings, root / "index", workers=1)
    latents = LatentCache(settings.cache.path, settings, identity=vae, compute="fp32", seed=5)
    text = TextCache(settings.cache.path, settings, identity=encoder, compute="fp32")
    encoders: list[Encoder] = []
    said: list[str] = []
    spoil = changes.pop("spoil", lambda moments: moments)

    def load(part: Encodes) -> ModelFamily:
        encoders.append(Encoder(part, spoil=spoil))
        return cast(ModelFamily, encoders[-1])

    rows = changes.pop("rows", np.arange(len(catalogue), dtype=np.int32))
    options = {name: changes.pop(name) for name in ("extra_captions", "verify_bytes") if name in changes}
    worker = Worker(catalogue, settings, load, torch.device("cpu"), say=said.append, **changes)
    summary = fill(worker, rows, Caches(latents, text), **options)
    return Filled(summary, encoders, catalogue, latents, text, said)
