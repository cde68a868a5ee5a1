"""The step of `adafactor`, torch's own."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from mezzotint.recipe.optimizers.adafactor import Adafactor
from mezzotint.training.optimizers._torch_class import TorchStep
from mezzotint.training.optimizers.base import OptimizerStep


def step_of(settings: Adafactor, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    """The library's."""
    options = {"beta2_decay": settings.beta2_decay, "eps": (None, settings.eps), "d": settings.clip_update}
    return TorchStep(torch.optim.Adafactor, options)
