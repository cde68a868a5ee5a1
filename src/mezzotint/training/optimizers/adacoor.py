"""The step of `adacoor`, EveryDream2's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mezzotint.recipe.optimizers.adacoor import AdaCoor
from mezzotint.training.optimizers import base
from mezzotint.training.optimizers.base import OptimizerStep, in_pieces


class AdaCoorStep(OptimizerStep):
    """EveryDream2's AdaCoor: no rate, no momentum, no weight decay. The state, kept in bfloat16, is v, the sum of
    squared gradients g times e, with e = ε in bfloat16:

        v ← v + e g², each product and the sum rounded to bfloat16
        p ← p − e g / (√v + ε), the divisor rounded to bfloat16, the rest in float32

    Nothing is read back to the host; where found_inf is 1, g counts as 0, which moves neither v nor p.
    """

    def working_bytes(self, sizes: Sequence[int]) -> int:
        return 6 * min(sum(sizes), base.PIECE)  # squares in float32 and bfloat16, or divisors in both

    def __init__(self, settings: AdaCoor, masters: Mapping[str, Tensor]) -> None:
        self._eps = settings.eps
        self._rounded_eps = float(torch.tensor(settings.eps, dtype=torch.bfloat16))
        self._sum = {name: torch.zeros_like(m, dtype=torch.bfloat16) for name, m in masters.items()}

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
        torch._foreach_div_(grads, scale)
        for grad in grads:
            grad.masked_fill_(found_inf > 0, 0.0)
        sums = [self._sum[name] for name in names]
        for pieces in in_pieces(masters, grads, sums):
            self._move_piece(*pieces)

    def _move_piece(self, masters: list[Tensor], grads: list[Tensor], sums: list[Tensor]) -> None:
        squares = torch._foreach_mul(grads, grads)
        torch._foreach_mul_(squares, self._rounded_eps)
        torch._foreach_add_(sums, [square.to(torch.bfloat16) for square in squares])
        del squares
        torch._foreach_mul_(grads, self._rounded_eps)
        divisors = torch._foreach_sqrt(sums)
        torch._foreach_add_(divisors, self._eps)
        torch._foreach_div_(grads, [divisor.to(torch.float32) for divisor in divisors])
        torch._foreach_sub_(masters, grads)

    def tensors(self) -> dict[str, Tensor]:
        return {f"opt.sum/{name}": tensor for name, tensor in self._sum.items()}

    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        return sum(2 * master.numel() for master in masters.values())


def step_of(settings: AdaCoor, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    """AdaCoor with its sums in bfloat16."""
    return AdaCoorStep(settings, masters)
