"""FLOPs of a training step: the matrix products and convolutions of the trained parts' forward and backward passes,
with attention as the plain formula. Not counted: frozen encoders and the optimizer."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from mezzotint.settings.base import with_values
from mezzotint.settings.recipe import Recipe
from mezzotint.shapes import Size
from mezzotint.tasks.check.memory import MetaModel, portrait


def flops_of_samples(recipe: Recipe, sizes: Iterable[Size], *, recomputes: bool = False) -> dict[Size, int]:
    """FLOPs of one sample's forward and backward pass, by image size. Nothing is computed: the network runs on meta
    tensors. recipe: located. recomputes: whether to count what `run.gradient_checkpointing` computes again; without,
    MFU is comparable between settings. Raises WeightsError for a model that cannot be built from its configurations."""
    # the plain formula of attention consists of products that the counter supports, for any kernel used in training
    plain: dict[str, Any] = {"run.precision": "fp32", "model.attention": "math", "run.offload.blocks": None}
    plain |= {} if recomputes else {"run.gradient_checkpointing.enabled": False}
    outline = MetaModel(with_values(recipe, plain), "cpu")

    @cache
    def count(size: Size) -> int:
        counter = FlopCounterMode(display=False)
        with torch.enable_grad():
            outline.both_passes(size, 1, counter)
        return int(counter.get_total_flops())

    return {size: count(portrait(size)) for size in sizes}
