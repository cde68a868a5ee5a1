"""What a recipe leaves to be worked out when a run starts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resolved:
    """Worked out once, from the recipe and the data set. seed: of all draws. steps: the run's length. ema_decay: of the
    average. rate_factor: what every rate is multiplied by."""

    seed: int
    steps: int
    ema_decay: float
    rate_factor: float = 1.0
