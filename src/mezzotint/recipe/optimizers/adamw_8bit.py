"""The optimizer `adamw-8bit`: AdamW with moments in eight bits."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from mezzotint.recipe.base import NEVER
from mezzotint.recipe.optimizers.base import KIND, Betas, Eps, NoDecay, Optimizer, WeightDecay


class AdamW8bit(Optimizer):
    """AdamW with its two moments in eight bits (Dettmers et al. 2022, arXiv:2110.02861): a quarter of their memory.
    Needs the extra `eight-bit` and a GPU."""

    takes_usual_rates: ClassVar[bool] = True
    state_words: ClassVar[str] = "two moments in eight bits"

    kind: Annotated[Literal["adamw-8bit"], KIND, NEVER] = "adamw-8bit"
    betas: Betas = (0.9, 0.999)
    eps: Eps = 1e-8
    weight_decay: WeightDecay = 0.01
    no_decay: NoDecay = ()


Settings = AdamW8bit
