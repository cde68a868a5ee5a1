"""FLOPs of a training step: the matrix products and convolutions of the trained parts' forward and backward passes,
with attention as the plain formula. Not counted: frozen encoders and the optimizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from mezzotint.settings.base import with_values
from mezzotint.settings.recipe import Recipe
from mezzotint.shapes import Size
from mezzotint.tasks.check.memory import portrait
from mezzotint.tasks.check.meta_model import MetaModel

# the plain formula of attention consists of products that the counter supports, for any kernel used in training
_PLAIN: dict[str, Any] = {"run.precision": "fp32", "model.attention": "math", "run.offload.blocks": None}


def flops_of_samples(recipe: Recipe, sizes: Iterable[Size]) -> dict[Size, int]:
    """FLOPs of one sample's forward and backward pass, by image size, without recomputation, so that MFU is comparable
    between settings. Nothing is computed: the network runs on meta tensors. recipe: located. Raises WeightsError for a
    model that cannot be built from its configurations."""
    outline = MetaModel(with_values(recipe, _PLAIN | {"run.gradient_checkpointing.enabled": False}), "cpu")
    count = cache(lambda size: sum(_count(outline, size)))
    return {size: count(portrait(size)) for size in sizes}


def flops_and_recomputed(recipe: Recipe, size: Size) -> tuple[int, int]:
    """FLOPs of one sample's forward and backward pass, and those that the recipe's recomputation adds. Otherwise as
    `flops_of_samples`."""
    return _count(MetaModel(with_values(recipe, _PLAIN), "cpu"), portrait(size))


def _count(outline: MetaModel, size: Size) -> tuple[int, int]:
    counter, again = FlopCounterMode(display=False), 0

    @contextmanager
    def recomputing() -> Iterator[None]:
        nonlocal again
        before = counter.get_total_flops()
        try:
            yield
        finally:
            again += counter.get_total_flops() - before

    with torch.enable_grad():
        outline.both_passes(size, 1, counter, recomputing)
    return counter.get_total_flops() - again, again
