"""A loader with a schedule given by the test."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from mezzotint.data.cache.entries import Caches, LatentCache, TextCache
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.loading.loader import Loader, RankShare
from mezzotint.data.schedule.columns import plan_columns
from mezzotint.data.schedule.placement import place
from mezzotint.data.schedule.plan import Timeline
from mezzotint.settings.sections.data import DataSettings
from mezzotint.shapes import Size
from mezzotint.stages import Placement


def open_loader(
    catalogue: Catalogue,
    rows: NDArray[np.int32],
    settings: DataSettings,
    *,
    accumulation: int = 1,
    seed: int,
    start_step: int = 0,
    last_step: int,
    latents: LatentCache | None = None,
    text: TextCache | None = None,
    device: torch.device | None = None,
    kind: type[Loader] = Loader,
    **share: int | None,
) -> Loader:
    """The steps from `start_step` to before `last_step`. share: as for `RankShare`."""
    timeline = Timeline(plan_columns(catalogue, rows, settings), settings, accumulation, seed)
    steps, caches = range(start_step, last_step), Caches(latents, text)
    part = RankShare(**share)  # type: ignore[arg-type]
    return kind(catalogue, rows, settings, timeline, steps, share=part, device=device, caches=caches)


def place_by(settings: DataSettings, size: Size, bucket: Size, *, crop_key: int, flip_key: int) -> Placement:
    """Where an image lies in its bucket by a recipe."""
    rules = {"crop": settings.crop, "jitter": settings.jitter, "flip": settings.flip}
    return place(size, bucket, **rules, crop_key=crop_key, flip_key=flip_key)  # type: ignore[arg-type]
