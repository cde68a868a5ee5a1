"""Settings of the optimizer `adacoor`: EveryDream2's rule without a learning rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import PositiveFloat

from mezzotint.settings.base import ALLOW, NEVER
from mezzotint.settings.optimizers.base import KIND, Optimizer


class AdaCoor(Optimizer):
    """EveryDream2's rule without a learning rate: the update of a weight is its gradient divided by the root of the sum
    of its squared gradients, times √eps. `optim.lr`, its schedule and weight decay have no effect; for batches of 8 and
    less."""

    allows_sharding: ClassVar[bool] = True
    has_rate: ClassVar[bool] = False
    advised: ClassVar[str] = "adacoor is for batches of 8 and less, with its eps left at 1e-8."
    state_description: ClassVar[str] = "sums of squares in bf16"

    kind: Annotated[Literal["adacoor"], KIND, NEVER] = "adacoor"
    eps: Annotated[PositiveFloat, ALLOW] = 1e-8
    """The only parameter of the rule; the first step of each weight is about its square root. Leave it at 1e-8."""

    def advice(self, batch_size: int) -> Iterator[str]:
        if batch_size > 8:
            yield f"is adacoor with batches of {batch_size}"
        if self.eps != 1e-8:
            yield f"is adacoor with eps {self.eps:g}"


Settings = AdaCoor
