"""The smoothed loss that people read: an exponential mean over steps whose first values count fully."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


class RunningMean:
    """m ← β m + (1 − β) x, divided by 1 − βⁿ after n values, as Adam's moments (Kingma and Ba 2015, arXiv:1412.6980).

    beta: 0.98 remembers about the last fifty values. Values that are not finite are left out.
    """

    def __init__(self, beta: float = 0.98) -> None:
        self._beta = beta
        self._mean = 0.0
        self._count = 0

    def take(self, value: float) -> None:
        """Takes one value."""
        if math.isfinite(value):
            self._mean = self._beta * self._mean + (1 - self._beta) * value
            self._count += 1

    @property
    def value(self) -> float | None:
        """The mean; None before the first value."""
        return self._mean / (1 - self._beta**self._count) if self._count else None

    def state(self) -> dict[str, Any]:
        """What it remembers, as JSON."""
        return {"mean": self._mean, "count": self._count}

    def load(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` gave; an empty one starts anew."""
        self._mean = float(state.get("mean", 0.0))
        self._count = int(state.get("count", 0))
