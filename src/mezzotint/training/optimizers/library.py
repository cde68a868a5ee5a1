"""The step of `library`: any subclass of `torch.optim.Optimizer`."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from mezzotint.settings.optimizers.library import Library
from mezzotint.training.optimizers import _torch_class
from mezzotint.training.optimizers.base import OptimizerStep


def step_of(settings: Library, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    """The class with a dotted name. Raises RecipeError E1061 if it cannot be imported or is not an optimizer."""
    kind = _torch_class.class_of(settings.class_name)
    _torch_class.require_stepping(kind, settings.options)
    return _torch_class.TorchStep(kind, settings.options)
