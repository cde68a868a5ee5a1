"""The step of `lion`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from mezzotint.settings.optimizers.lion import Lion
from mezzotint.training.optimizers.base import OptimizerStep, StepInputs, zeros_like


class LionStep(OptimizerStep):
    """Lion (Chen et al. 2023, arXiv:2302.06675, algorithm 2), with m kept in float32:

        c ← β₁ m + (1 − β₁) g
        p ← p (1 − lr wd) − lr sign(c)
        m ← β₂ m + (1 − β₂) g

    It does not synchronize with the host; if found_inf is 1, neither m nor p changes.
    """

    def __init__(self, settings: Lion, masters: Mapping[str, Tensor]) -> None:
        super().__init__(mean=zeros_like(masters))
        self._betas = settings.betas

    def step(self, inputs: StepInputs) -> None:
        first, second = self._betas
        grads = inputs.unscale()
        moved = 1.0 - inputs.found_inf  # () 0 or 1: factor that disables a non-finite step
        means = [self.state["mean"][name] for name in inputs.names]
        steps = torch._foreach_mul(means, first)
        torch._foreach_add_(steps, grads, alpha=1.0 - first)
        torch._foreach_sign_(steps)
        torch._foreach_mul_(steps, moved * inputs.lr)
        torch._foreach_mul_(inputs.masters, 1.0 - moved * (inputs.lr * inputs.weight_decay))
        torch._foreach_sub_(inputs.masters, steps)
        torch._foreach_mul_(means, 1.0 - moved * (1.0 - second))
        torch._foreach_add_(means, grads, alpha=1.0 - second)


def step_of(settings: Lion, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    """Lion with m in float32."""
    return LionStep(settings, masters)
