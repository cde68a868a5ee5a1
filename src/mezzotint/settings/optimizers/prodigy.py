"""The optimizer `prodigy`: AdamW that estimates its learning rate."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat

from mezzotint.settings.base import ALLOW, NEVER
from mezzotint.settings.optimizers.base import KIND, Beta, Betas, Eps, NoDecay, Optimizer, WeightDecay


class Prodigy(Optimizer):
    """Prodigy (Mishchenko and Defazio 2024, arXiv:2306.06101): AdamW that estimates its learning rate. `optim.lr` is a
    factor of it and should be 1; `optim.schedule` shapes it. Needs the extra `optimizers`."""

    is_of_package: ClassVar[bool] = True

    kind: Annotated[Literal["prodigy"], KIND, NEVER] = "prodigy"
    betas: Betas = (0.9, 0.999)

    d_beta: Annotated[Beta | None, ALLOW] = None
    """Decay of the sums from which the rate d is estimated, elsewhere called beta3; None is the square root of the
    second of `betas`."""

    eps: Eps = 1e-8
    weight_decay: WeightDecay = 0.0

    d0: Annotated[PositiveFloat, NEVER] = 1e-6
    """The initial estimate of the rate; it only grows from there."""

    d_coef: Annotated[PositiveFloat, ALLOW] = 1.0
    """A factor of the estimated rate; 0.5 to 2 is sensible."""

    growth_rate: Annotated[Annotated[float, Field(gt=1.0)] | None, ALLOW] = None
    """The largest factor by which the rate may grow from one step to the next, such as 1.02; None sets no limit."""

    bias_correction: Annotated[bool, ALLOW] = False
    """Correct the moments for starting at zero, as AdamW does."""

    safeguard_warmup: Annotated[bool, ALLOW] = False
    """Estimate the rate as if there were no warm-up; recommended with `optim.schedule.warmup_steps`."""

    no_decay: NoDecay = ()

    def rate_note(self, rate: float, where: str) -> str | None:
        if rate >= 0.1:
            return None
        return f"prodigy estimates the learning rate, and {where} is a factor of it: {rate:g}; set it to 1"


Settings = Prodigy
