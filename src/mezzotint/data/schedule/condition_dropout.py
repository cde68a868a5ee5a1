"""Which visits have no caption, no condition images, or neither (`data.condition_dropout`)."""

from __future__ import annotations

from mezzotint import draws
from mezzotint.data.schedule.plan import Visit


def has_caption(visit: Visit, dropout: float) -> bool:
    """Whether a visit has its caption. dropout: p, the probability of each of: only the caption is missing, only the
    images, both."""
    return dropout == 0 or _draw(visit) >= 2 * dropout


def has_images(visit: Visit, dropout: float) -> bool:
    """Whether a visit has its condition images, by the same draw as `has_caption`."""
    return dropout == 0 or not dropout <= _draw(visit) < 3 * dropout


def _draw(visit: Visit) -> float:
    return draws.uniform(visit.draw("condition-dropout"))
