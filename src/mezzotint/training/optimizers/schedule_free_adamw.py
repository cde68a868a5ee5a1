"""The step of `schedule-free-adamw`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from mezzotint.settings.optimizers.schedule_free_adamw import ScheduleFreeAdamW
from mezzotint.training.optimizers.base import OptimizerStep, StepInputs, zeros_like


class ScheduleFreeAdamWStep(OptimizerStep):
    """Schedule-free AdamW (Defazio et al. 2024, arXiv:2405.15682, algorithm 1), as `schedulefree.AdamWScheduleFree`.
    The masters are y, at which gradients are taken:

        γ ← lr · min(1, t / warmup_steps)
        v ← β₂ v + (1 − β₂) g²
        d ← g / (√(v / (1 − β₂^t)) + eps) + wd · y
        c ← w / Σw,  w = t^r · (largest γ so far)^weight_lr_power
        y ← y + c (z − y) − γ (1 − β₁ (1 − c)) d
        z ← z − γ d

    Evaluation weights are x = y + (1 − 1/β₁)(z − y), the average of z with the weights c. t counts applied steps; c is
    the same for all weights of a part, and follows the highest of its rates. It does not synchronize with the host; if
    found_inf is 1, nothing changes.
    """

    has_evaluation_weights = True

    def __init__(self, settings: ScheduleFreeAdamW, masters: Mapping[str, Tensor], applied: Tensor) -> None:
        super().__init__(z={name: m.clone() for name, m in masters.items()}, square=zeros_like(masters))
        self._settings, self._applied = settings, applied
        self._part = next(iter(masters)).partition("/")[0]
        self._highest_rate, self._sum, self._weight = (applied.new_zeros((), dtype=torch.float64) for _ in range(3))

    def begin_step(self, lr: float, found_inf: Tensor) -> None:
        settings, moved = self._settings, 1.0 - found_inf.to(self._sum)
        self._highest_rate.copy_(torch.maximum(self._highest_rate, self._warm_up() * moved * lr))
        share = self._applied.double() ** settings.r * self._highest_rate**settings.weight_lr_power * moved
        self._sum.add_(share)
        self._weight.copy_(torch.where(self._sum > 0, share / self._sum, 0.0))

    def step(self, inputs: StepInputs) -> None:
        (beta_1, beta_2), names = self._settings.betas, inputs.names
        moved, grads = 1.0 - inputs.found_inf, inputs.unscale()
        z, squares = ([self.state[kind][name] for name in names] for kind in ("z", "square"))
        torch._foreach_mul_(squares, 1.0 - moved * (1.0 - beta_2))
        torch._foreach_addcmul_(squares, grads, grads, value=1.0 - beta_2)
        # 1 − β₂^t in float64, with t at least 1: 0 after a first step that was not finite
        roots = torch._foreach_div(squares, (1.0 - beta_2 ** self._applied.double().clamp_min(1.0)).float())
        torch._foreach_sqrt_(roots)
        torch._foreach_add_(roots, self._settings.eps)
        torch._foreach_div_(grads, roots)
        del roots
        if inputs.weight_decay:
            torch._foreach_add_(grads, inputs.masters, alpha=inputs.weight_decay)
        weight = self._weight * moved
        towards_z = torch._foreach_sub(z, inputs.masters)
        torch._foreach_mul_(towards_z, weight.float())
        torch._foreach_add_(inputs.masters, towards_z)
        del towards_z
        torch._foreach_mul_(grads, (self._warm_up() * moved * inputs.lr).float())
        torch._foreach_sub_(z, grads)
        torch._foreach_mul_(grads, (1.0 - beta_1 * (1.0 - weight)).float())
        torch._foreach_sub_(inputs.masters, grads)

    def _warm_up(self) -> Tensor:
        """() float64, the factor of the rate at this step."""
        steps = self._settings.warmup_steps
        return (self._applied.double() / steps).clamp_max(1.0) if steps else torch.ones_like(self._sum)

    def evaluation_weights(self, masters: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        towards_z = 1.0 - 1.0 / self._settings.betas[0]
        return {n: torch.lerp(y.float(), self.state["z"][n].float(), towards_z) for n, y in masters.items()}

    def working_bytes(self, sizes: Sequence[int]) -> int:
        return 4 * sum(sizes)

    def state_bytes(self, masters: Mapping[str, Tensor]) -> int:
        return super().state_bytes(masters) + self._highest_rate.nbytes + self._sum.nbytes

    def tensors(self) -> dict[str, Tensor]:
        totals = {"highest_rate": self._highest_rate, "weight_sum": self._sum}
        return super().tensors() | {f"opt.{name}/{self._part}": total for name, total in totals.items()}


def step_of(settings: ScheduleFreeAdamW, masters: Mapping[str, Tensor], applied: Tensor) -> OptimizerStep:
    """Schedule-free AdamW with z and v in the masters' dtype."""
    return ScheduleFreeAdamWStep(settings, masters, applied)
