"""The optimizer `schedule-free-adamw`: AdamW with an average of its weights instead of a falling learning rate."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt

from mezzotint.settings.base import ALLOW, NEVER
from mezzotint.settings.optimizers.base import KIND, Beta, Eps, NoDecay, Optimizer, WeightDecay


class ScheduleFreeAdamW(Optimizer):
    """Schedule-free AdamW (Defazio et al. 2024, arXiv:2405.15682): AdamW whose learning rate stays constant after a
    warm-up. Gradients are taken at y, between AdamW's weights z and their running average x. Previews, validation, the
    EMA and exports use x; checkpoints store y and z. Use 1 to 10 times AdamW's rate."""

    allows_sharding: ClassVar[bool] = True
    state_description: ClassVar[str] = "the weights z and a second moment"

    kind: Annotated[Literal["schedule-free-adamw"], KIND, NEVER] = "schedule-free-adamw"
    betas: Annotated[tuple[Annotated[float, Field(gt=0.0, lt=1.0)], Beta], NEVER] = (0.9, 0.999)
    """The weight of x in y = (1 − β₁) z + β₁ x, and the decay of the running mean of the squared gradient. 0.95 or 0.98
    as the first suits long runs."""

    eps: Eps = 1e-8
    weight_decay: WeightDecay = 0.0
    no_decay: NoDecay = ()

    warmup_steps: Annotated[NonNegativeInt, ALLOW] = 0
    """Steps over which the rate rises linearly; with N of them the first has 1/N of it. Skipped steps do not count."""

    r: Annotated[NonNegativeFloat, ALLOW] = 0.0
    """The weight of step t in the average is t^r · rate^weight_lr_power; above 0, later steps weigh more."""

    weight_lr_power: Annotated[NonNegativeFloat, ALLOW] = 2.0
    """The power of the highest rate so far in a step's weight in the average; steps of the warm-up then weigh less. 0
    weighs all alike."""

    @property
    def has_evaluation_weights(self) -> bool:
        return True


Settings = ScheduleFreeAdamW
