"""The optimizer `adafactor`: second moments by row and column."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat

from mezzotint.settings.base import ALLOW, NEVER
from mezzotint.settings.optimizers.base import KIND, NoDecay, Optimizer, WeightDecay


class Adafactor(Optimizer):
    """torch's Adafactor (Shazeer and Stern 2018, arXiv:1804.04235): second moments by row and column, no first moments;
    the least memory of all."""

    state_description: ClassVar[str] = "second moments by row and column, over the last two axes of a tensor"

    kind: Annotated[Literal["adafactor"], KIND, NEVER] = "adafactor"
    eps: Annotated[PositiveFloat, ALLOW] = 1e-3
    """The smallest parameter scale used for the step size."""

    beta2_decay: Annotated[float, Field(ge=-2.0, lt=0.0), ALLOW] = -0.8
    """The exponent of the step count by which the decay of the second moment approaches 1."""

    clip_update: Annotated[float, Field(ge=1.0), ALLOW] = 1.0
    """The largest root mean square of an update; larger ones are scaled down."""

    weight_decay: WeightDecay = 0.0
    no_decay: NoDecay = ()


Settings = Adafactor
