"""AdamW as torch's fused kernel: one pass over memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mezzotint.training.optimizers.base import OptimizerStep


class AdamWStep(OptimizerStep):
    """AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) by torch's fused kernel: nothing is read back to the host.

    applied: () float32, the count of steps that moved, by which the moments' bias is corrected; `Update` counts it
    before it calls.
    """

    def __init__(
        self, masters: Mapping[str, Tensor], applied: Tensor, *, betas: tuple[float, float], eps: float
    ) -> None:
        self._betas, self._eps = betas, eps
        self._applied = applied
        self._mean = {name: torch.zeros_like(m) for name, m in masters.items()}
        self._square = {name: torch.zeros_like(m) for name, m in masters.items()}

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
        torch._fused_adamw_(
            list(masters),
            grads,
            [self._mean[name] for name in names],
            [self._square[name] for name in names],
            [],
            [self._applied] * len(names),
            lr=lr,
            beta1=self._betas[0],
            beta2=self._betas[1],
            weight_decay=weight_decay,
            eps=self._eps,
            amsgrad=False,
            maximize=False,
            grad_scale=scale,
            found_inf=found_inf,
        )

    def tensors(self) -> dict[str, Tensor]:
        means = {f"opt.mean/{name}": tensor for name, tensor in self._mean.items()}
        return means | {f"opt.square/{name}": tensor for name, tensor in self._square.items()}

    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        return sum(2 * master.element_size() * master.numel() for master in masters.values())
