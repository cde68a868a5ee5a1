"""Whether measured losses have turned: sentences for a run's output when a held-out loss rises again.

A curve has turned when more than `ENOUGH` measurements are there, the last `LATELY` of them rise on average, and the
lowest lies before those. It is said once, and again only after a new lowest measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENOUGH = 11
LATELY = 5


class OverfitWarning:
    """Follows curves by name. What it remembers goes into the checkpoint, so that a run that goes on says the same."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[int, float]]] = {}
        self._told: dict[str, float] = {}

    def take(self, step: int, losses: Mapping[str, float]) -> list[str]:
        """Adds a measurement of each curve, in the order of steps. Returns a sentence for each that has just turned."""
        sentences = []
        for name, loss in losses.items():
            seen = self._seen.setdefault(name, [])
            seen.append((step, loss))
            best, lowest = min(seen, key=lambda one: one[1])
            if self._told.get(name) != lowest and _has_turned(seen, best):
                self._told[name] = lowest
                sentences.append(
                    f"{name} rises: {seen[-LATELY][1]:.4f} at step {seen[-LATELY][0]:,}, {loss:.4f} now; it was lowest "
                    f"at step {best:,}, with {lowest:.4f}: from there on the model may be learning its pictures by "
                    "heart, and an export of about then may draw better"
                )
        return sentences

    def state(self) -> dict[str, Any]:
        """As JSON; empty before the first measurement."""
        return {"seen": self._seen, "told": self._told} if self._seen else {}

    def load(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` gave."""
        seen = state.get("seen", {})
        self._seen = {name: [(int(step), float(loss)) for step, loss in curve] for name, curve in seen.items()}
        self._told = {name: float(loss) for name, loss in state.get("told", {}).items()}


def _has_turned(seen: list[tuple[int, float]], best: int) -> bool:
    """best: the step of the lowest. The mean of successive differences is that of the ends."""
    if len(seen) <= ENOUGH:
        return False
    return seen[-1][1] > seen[-LATELY][1] and best < seen[-LATELY][0]
