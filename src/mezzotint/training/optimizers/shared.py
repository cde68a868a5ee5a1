"""AdamW as torch's fused kernel: one pass over memory."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from mezzotint.training.optimizers.base import OptimizerStep, StepInputs, zeros_like


class AdamWStep(OptimizerStep):
    """AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) by torch's fused kernel, without host synchronization.

    applied: () float32, the number of applied steps, used for bias correction; `Update` increments it before each step.
    """

    def __init__(
        self, masters: Mapping[str, Tensor], applied: Tensor, *, betas: tuple[float, float], eps: float
    ) -> None:
        super().__init__(mean=zeros_like(masters), square=zeros_like(masters))
        self._betas, self._eps = betas, eps
        self._applied = applied

    def step(self, inputs: StepInputs) -> None:
        torch._fused_adamw_(
            inputs.masters,
            inputs.grads,
            [self.state["mean"][name] for name in inputs.names],
            [self.state["square"][name] for name in inputs.names],
            [],
            [self._applied] * len(inputs.names),
            lr=inputs.lr,
            beta1=self._betas[0],
            beta2=self._betas[1],
            weight_decay=inputs.weight_decay,
            eps=self._eps,
            amsgrad=False,
            maximize=False,
            grad_scale=inputs.scale,
            found_inf=inputs.found_inf,
        )
