"""The optimizer `adamw`: AdamW with float32 moments."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from mezzotint.settings.base import NEVER
from mezzotint.settings.optimizers.base import KIND, Adam


class AdamW(Adam):
    """AdamW (Loshchilov and Hutter 2019, arXiv:1711.05101) with float32 moments, in one fused pass."""

    allows_sharding: ClassVar[bool] = True
    takes_usual_rates: ClassVar[bool] = True
    state_description: ClassVar[str] = "two moments"

    kind: Annotated[Literal["adamw"], KIND, NEVER] = "adamw"


Settings = AdamW
