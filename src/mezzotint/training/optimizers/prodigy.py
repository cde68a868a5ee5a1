"""The step of `prodigy`, of pytorch_optimizer."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from mezzotint.settings.optimizers.prodigy import Prodigy
from mezzotint.training.optimizers import _torch_class
from mezzotint.training.optimizers.base import OptimizerStep


def step_of(settings: Prodigy, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    """The library's optimizer. Raises RecipeError E1061 if it is not installed."""
    options = settings.model_dump(exclude={"kind", "weight_decay", "no_decay", "growth_rate", "d_beta"})
    limit = math.inf if settings.growth_rate is None else settings.growth_rate
    kind = _torch_class.class_of("pytorch_optimizer.Prodigy")
    return _torch_class.TorchStep(kind, options | {"growth_rate": limit, "beta3": settings.d_beta})
