"""The optimizer `adamw-8bit-or-adamw`: one of two, chosen when a run starts."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from mezzotint import registry
from mezzotint.settings.base import NEVER
from mezzotint.settings.optimizers.base import KIND, Adam, Optimizer


class AdamW8bitOrAdamW(Adam):
    """AdamW with 8-bit moments on a CUDA GPU, plain AdamW elsewhere. The choice is made when a run starts, printed and
    recorded; a resumed run keeps it."""

    takes_usual_rates: ClassVar[bool] = True
    is_open: ClassVar[bool] = True

    kind: Annotated[Literal["adamw-8bit-or-adamw"], KIND, NEVER] = "adamw-8bit-or-adamw"

    def choose_kind(self, device: str, before: str) -> Optimizer:
        """adamw-8bit on a CUDA GPU, adamw elsewhere; for a resumed run the one that it started with."""
        kind = before if before in ("adamw", "adamw-8bit") else "adamw-8bit" if device == "cuda" else "adamw"
        chosen: type[Optimizer] = registry.find("settings/optimizers", kind).Settings
        return chosen.model_validate(self.model_dump() | {"kind": kind})

    def explain_choice(self, chosen: Optimizer, device: str) -> str:
        if chosen.kind == "adamw-8bit":
            return "using adamw-8bit; the run keeps it"
        return (
            f"8-bit moments need a CUDA GPU, and this run is on {device}; using adamw with float32 moments; the run "
            "keeps it"
        )


Settings = AdamW8bitOrAdamW
