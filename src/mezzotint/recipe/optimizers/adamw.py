"""The optimizer `adamw`: AdamW with float32 moments."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from mezzotint.recipe.base import NEVER
from mezzotint.recipe.optimizers.base import KIND, Betas, Eps, NoDecay, Optimizer, WeightDecay


class AdamW(Optimizer):
    """AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) with float32 moments, one fused pass."""

    allows_sharding: ClassVar[bool] = True
    takes_usual_rates: ClassVar[bool] = True
    state_words: ClassVar[str] = "two moments"

    kind: Annotated[Literal["adamw"], KIND, NEVER] = "adamw"
    betas: Betas = (0.9, 0.999)
    eps: Eps = 1e-8
    weight_decay: WeightDecay = 0.01
    no_decay: NoDecay = ()


Settings = AdamW
