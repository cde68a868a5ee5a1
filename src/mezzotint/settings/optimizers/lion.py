"""The optimizer `lion`: the sign of a running mean of gradients."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from mezzotint.settings.base import ALLOW, NEVER
from mezzotint.settings.optimizers.base import KIND, Beta, NoDecay, Optimizer, WeightDecay


class Lion(Optimizer):
    """Lion (Chen et al. 2023, arXiv:2302.06675): each weight moves by the rate in the direction of the sign of a
    running mean of its gradients. One moment instead of AdamW's two. Use a third to a tenth of AdamW's rate, and three
    to ten times its weight decay."""

    allows_sharding: ClassVar[bool] = True

    kind: Annotated[Literal["lion"], KIND, NEVER] = "lion"
    betas: Annotated[tuple[Beta, Beta], ALLOW] = (0.9, 0.99)
    """The weight of the running mean in the direction of a step, and the decay of the mean per step."""

    weight_decay: WeightDecay = 0.01
    no_decay: NoDecay = ()


Settings = Lion
