"""The step of `lion`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mezzotint.recipe.optimizers.lion import Lion
from mezzotint.training.optimizers.base import OptimizerStep


class LionStep(OptimizerStep):
    """Lion (Chen et al. 2023, arXiv:2302.06675, algorithm 2), with m kept in float32:

        c ← β₁ m + (1 − β₁) g
        p ← p (1 − lr wd) − lr sign(c)
        m ← β₂ m + (1 − β₂) g

    Nothing is read back to the host; where found_inf is 1, neither m nor p moves.
    """

    def __init__(self, settings: Lion, masters: Mapping[str, Tensor]) -> None:
        self._settings = settings
        self._mean = {name: torch.zeros_like(m) for name, m in masters.items()}

    def step(
        self,
        names: Sequence[str],
        masters: Sequence[Tensor],
        grads: list[Tensor],
        *,
        lr: float,
        weight_decay: float,
        scale: Tensor,
        found_inf: Tensor,
    ) -> None:
        first, second = self._settings.betas
        torch._foreach_div_(grads, scale)
        for grad in grads:
            grad.masked_fill_(found_inf > 0, 0.0)
        moved = 1.0 - found_inf  # () 0 or 1: multiplies what must not happen in a spoilt step
        means = [self._mean[name] for name in names]
        steps = torch._foreach_mul(means, first)
        torch._foreach_add_(steps, grads, alpha=1.0 - first)
        torch._foreach_sign_(steps)
        torch._foreach_mul_(steps, moved * lr)
        torch._foreach_mul_(list(masters), 1.0 - moved * (lr * weight_decay))
        torch._foreach_sub_(list(masters), steps)
        torch._foreach_mul_(means, 1.0 - moved * (1.0 - second))
        torch._foreach_add_(means, grads, alpha=1.0 - second)

    def tensors(self) -> dict[str, Tensor]:
        return {f"opt.mean/{name}": tensor for name, tensor in self._mean.items()}

    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        return sum(master.element_size() * master.numel() for master in masters.values())


def step_of(settings: Lion, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    """Lion with m in float32."""
    return LionStep(settings, masters)
