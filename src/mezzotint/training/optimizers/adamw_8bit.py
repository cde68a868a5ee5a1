"""The step of `adamw-8bit`, of bitsandbytes."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from mezzotint.settings.optimizers.adamw_8bit import AdamW8bit
from mezzotint.training.optimizers import _torch_class
from mezzotint.training.optimizers.base import OptimizerStep


def step_of(settings: AdamW8bit, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    """The library's optimizer. Raises RecipeError E1061 if it is not installed."""
    kind = _torch_class.class_of("bitsandbytes.optim.AdamW8bit")
    return _torch_class.TorchStep(kind, {"betas": settings.betas, "eps": settings.eps})
