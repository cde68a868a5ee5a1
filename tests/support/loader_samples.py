"""A loader over nine images, and all attributes of a loaded sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from mezzotint.data.buckets import buckets
from mezzotint.data.cache.entries import LatentCache, LatentLayout, TextCache
from mezzotint.data.cache.store import as_addresses
from mezzotint.data.cache.text_rows import layout_of
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.settings.sections.data import DataSettings
from mezzotint.stages import StepBatches, TextEmbedding
from support.loading import open_loader

SIZES = [(40, 40), (64, 32), (30, 50), (45, 33), (32, 64), (80, 40), (37, 37), (33, 60), (50, 36)]


def data(folder: Path, **changes: object) -> DataSettings:
    usual = {
        "path": [folder], "resolution": 32, "buckets": {"step": 8}, "batch_size": 4, "crop": "random", "flip": 0.5,
        "captions": {"lines": "random", "dropout": 0.3}, "workers": 0, "repeats": 1.5,
    }  # fmt: skip
    return DataSettings.model_validate(usual | changes)


def rows_of(catalogue: Catalogue) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.arange(len(catalogue), dtype=np.int32)


def steps(catalogue: Catalogue, settings: DataSettings, first: int, last: int, **changes: object) -> list[StepBatches]:
    arguments = {"accumulation": 2, "seed": 7} | changes
    with open_loader(catalogue, rows_of(catalogue), settings, start_step=first, last_step=last, **arguments) as loader:  # type: ignore[arg-type]
        return list(loader)


@dataclass(frozen=True)
class Seen:
    """Everything a step says of one sample."""

    step: int
    position: int
    epoch: int
    count: int
    key: str
    caption: str
    posterior: int
    geometry: tuple[int, ...]
    weight: float
    pixels: bytes


def seen(step: StepBatches) -> Iterator[Seen]:
    for batch in step.batches:
        for i in range(batch.size):
            geometry = torch.cat([batch.original_size[i], batch.crop_top_left[i], batch.target_size[i]])
            numbers = batch.pixels if batch.pixels is not None else batch.moments
            assert numbers is not None
            yield Seen(
                step.step, int(batch.positions[i]), step.epoch, step.count, batch.keys[i], batch.captions[i],
                int(batch.posterior_keys[i]), tuple(geometry.tolist()), float(batch.weight[i]),
                numbers[i].numpy().tobytes(),
            )  # fmt: skip


def stream(of_ranks: Sequence[list[StepBatches]]) -> list[Seen]:
    """The whole stream, ranks put together, in order of step and position."""
    samples = [one for of_rank in of_ranks for step in of_rank for one in seen(step)]
    return sorted(samples, key=lambda one: (one.step, one.position))


def _caches(catalogue: Catalogue, settings: DataSettings, folder: Path) -> tuple[LatentCache, TextCache]:
    """Caches filled with numbers that say which entry they are: no encoder is needed for that."""
    latents = LatentCache(folder, settings, identity="vae", compute="fp32", seed=7)
    latents.define(LatentLayout(channels=8, pixels=8))
    table = buckets.table(settings)
    of_row = buckets.assign(catalogue.width, catalogue.height, table)
    for row in range(len(catalogue)):
        for view in range(latents.views):
            bucket = table[of_row[row]]
            placed = latents.placement(catalogue, row, view, bucket)
            store = latents.store(bucket)
            assert store is not None
            values = torch.full((1, *store.shape), float(row * 100 + view))
            store.append([latents.address(catalogue, row, placed, view)], values)
    text = TextCache(folder, settings, identity="encoder", compute="fp32")
    for caption in {"", *(c for row in range(len(catalogue)) for c in catalogue.captions(row))}:
        embedding = _embedding(caption)
        text.define(layout_of(embedding))
        rows = text.rows()
        assert rows is not None
        rows.append(as_addresses([text.address(caption)]), embedding, names=[caption])
    return latents, text


def _embedding(caption: str) -> TextEmbedding:
    states = torch.zeros(1, 5, 3)
    for i, byte in enumerate(caption.encode()[:15]):
        states.view(-1)[i] = byte
    return TextEmbedding(states, mask=torch.ones(1, 5), pooled=torch.full((1, 2), float(len(caption))))
