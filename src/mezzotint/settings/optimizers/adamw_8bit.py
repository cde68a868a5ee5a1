"""The optimizer `adamw-8bit`: AdamW with 8-bit moments."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from mezzotint.settings.base import NEVER
from mezzotint.settings.optimizers.base import KIND, Adam


class AdamW8bit(Adam):
    """AdamW with 8-bit moments (Dettmers et al. 2022, arXiv:2110.02861): a quarter of their memory. Needs the extra
    `eight-bit` and a GPU."""

    is_of_package: ClassVar[bool] = True
    takes_usual_rates: ClassVar[bool] = True
    state_description: ClassVar[str] = "two moments in eight bits"

    kind: Annotated[Literal["adamw-8bit"], KIND, NEVER] = "adamw-8bit"


Settings = AdamW8bit
