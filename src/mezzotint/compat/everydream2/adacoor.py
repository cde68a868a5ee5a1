"""The step of EveryDream2's optimizer `adacoor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mezzotint.compat.everydream2.adacoor_settings import AdaCoor
from mezzotint.training.optimizers import base
from mezzotint.training.optimizers.base import OptimizerStep, StepInputs, cast, in_pieces, zeros_like


class AdaCoorStep(OptimizerStep):
    """EveryDream2's AdaCoor: no rate, no momentum, no weight decay. The state, in bfloat16, is v, the sum of squared
    gradients g times e, with e = ε in bfloat16:

        v ← v + e g², each product and the sum rounded to bfloat16
        p ← p − e g / (√v + ε), the divisor rounded to bfloat16, the rest in float32

    Nothing is read back to the host; if found_inf is 1, g counts as 0, which changes neither v nor p.
    """

    def __init__(self, settings: AdaCoor, masters: Mapping[str, Tensor]) -> None:
        super().__init__(sum=zeros_like(masters, torch.bfloat16))
        self._eps = settings.eps
        self._rounded_eps = float(torch.tensor(settings.eps, dtype=torch.bfloat16))

    def working_bytes(self, sizes: Sequence[int]) -> int:
        return 6 * min(sum(sizes), base.PIECE)  # squares in float32 and bfloat16, or divisors in both

    def step(self, inputs: StepInputs) -> None:
        sums = [self.state["sum"][name] for name in inputs.names]
        for pieces in in_pieces(inputs.masters, inputs.unscale(), sums):
            self._move_piece(*pieces)

    def _move_piece(self, masters: list[Tensor], grads: list[Tensor], sums: list[Tensor]) -> None:
        squares = torch._foreach_mul(grads, grads)
        torch._foreach_mul_(squares, self._rounded_eps)
        torch._foreach_add_(sums, cast(squares, torch.bfloat16))
        del squares
        torch._foreach_mul_(grads, self._rounded_eps)
        divisors = torch._foreach_sqrt(sums)
        torch._foreach_add_(divisors, self._eps)
        torch._foreach_div_(grads, cast(divisors, torch.float32))
        torch._foreach_sub_(masters, grads)


def step_of(settings: AdaCoor, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    """AdaCoor with its sums in bfloat16."""
    return AdaCoorStep(settings, masters)
