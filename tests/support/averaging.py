"""An optimizer with `train()` and `eval()`, as those of other packages that average their weights."""

from __future__ import annotations

from typing import Any

import torch


class Averaging(torch.optim.Optimizer):
    """SGD with the mean of all weights so far as evaluation weights. `eval()` exchanges weights and mean, in place."""

    def __init__(self, params: Any, lr: float = 1.0, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, "is_training": False})

    def train(self) -> None:
        """Puts the trained weights back."""
        self._exchange(is_training=True)

    def eval(self) -> None:
        """Puts the mean into the weights."""
        self._exchange(is_training=False)

    @torch.no_grad()
    def _exchange(self, *, is_training: bool) -> None:
        for group in self.param_groups:
            for p in group["params"] if group["is_training"] != is_training else ():
                if "mean" in (state := self.state[p]):
                    mean = state["mean"].clone()
                    state["mean"].copy_(p)
                    p.copy_(mean)
            group["is_training"] = is_training

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            assert group["is_training"], "a step in evaluation mode"
            for p in group["params"]:
                state = self.state[p]
                state["count"] = state.get("count", 0) + 1
                p.sub_(group["lr"] * p.grad)
                mean = state.setdefault("mean", torch.zeros_like(p))
                mean.lerp_(p, 1 / state["count"])
