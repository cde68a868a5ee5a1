"""The shadow's rules: how much of the exponential moving average stays at each of its updates.

Functions of a counter that lives on the device, so that the host waits for nothing. What keeps the tensors is
`training.update`.
"""

from __future__ import annotations

import torch
from torch import Tensor

SATURATION_UPDATES = 2000.0
"""The time constant of the saturating rule, in updates of the shadow (MindONE, Open-Sora-Plan)."""


def decay_for(strength: float, *, interval: int, steps: int) -> float:
    """The decay that leaves `strength` of the start in the average when a run ends (EveryDream2's strength target).

    strength: in (0, 1). interval: steps from one update to the next. steps: of the run. Returns strength^(1/U) for U =
    steps / interval updates, not rounded; 0 when that is too small for a float.
    """
    return float(strength ** (interval / steps))


def decay_at(rule: str, decay: float, updates: Tensor) -> Tensor:
    """How much of the shadow stays at its next update: shadow ← d · shadow + (1 − d) · weights.

    rule: of `EmaSettings.rule`. decay: the highest d, in (0, 1). updates: u, the number of updates made before this
    one; 0-dim float32 or float64, on any device. Returns d, 0-dim, of the same dtype and device. Raises ValueError for
    another rule.

    constant: d = decay.
    ramp: d = min(decay, (1 + u)/(10 + u)), and 0 at the first update, which copies: diffusers' `EMAModel` with its
    defaults, whose update k = 1, 2, … has u = k − 1.
    saturating: d = decay · (1 − exp(−(u + 1)/2000)): MindONE and Open-Sora-Plan, whose counter starts at 1.
    """
    match rule:
        case "constant":
            return torch.full_like(updates, decay)
        case "ramp":
            # (u > 0) copies at the first update, where (1 + u)/(10 + u) would keep a tenth
            return ((1 + updates) / (10 + updates)).clamp_max(decay) * (updates > 0)
        case "saturating":
            # expm1: 1 − exp(−x) loses half its digits for the first updates
            return -decay * torch.expm1(-(updates + 1) / SATURATION_UPDATES)
        case _:
            raise ValueError(f"no rule of the shadow is called {rule!r}")
