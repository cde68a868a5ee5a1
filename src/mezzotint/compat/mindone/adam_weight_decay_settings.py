"""Settings of the optimizer `adam-weight-decay`: MindSpore's AdamW without bias correction."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from mezzotint.settings.base import NEVER
from mezzotint.settings.optimizers.base import KIND, Adam, Eps


class AdamWeightDecay(Adam):
    """MindSpore's AdamWeightDecay: AdamW without bias correction of the moments, which changes the size of the first
    steps (at β₂ 0.98 the first is 0.7 times the rate, at 0.999 three times)."""

    allows_sharding: ClassVar[bool] = True
    state_description: ClassVar[str] = "two moments"

    kind: Annotated[Literal["adam-weight-decay"], KIND, NEVER] = "adam-weight-decay"
    eps: Eps = 1e-6


Settings = AdamWeightDecay
