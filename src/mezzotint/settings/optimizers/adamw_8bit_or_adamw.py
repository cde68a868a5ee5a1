"""The optimizer `adamw-8bit-or-adamw`: one of two, settled when a run starts."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from mezzotint import registry
from mezzotint.settings.base import NEVER
from mezzotint.settings.optimizers.base import KIND, Adam, Optimizer


class AdamW8bitOrAdamW(Adam):
    """AdamW with moments in eight bits where that can run, on a GPU of CUDA, and plain AdamW elsewhere. Which one it is
    is settled when a run starts, said and recorded; the run keeps it wherever it goes on."""

    takes_usual_rates: ClassVar[bool] = True
    is_open: ClassVar[bool] = True

    kind: Annotated[Literal["adamw-8bit-or-adamw"], KIND, NEVER] = "adamw-8bit-or-adamw"

    def settled(self, device: str, before: str) -> Optimizer:
        """adamw-8bit on a GPU of CUDA, adamw elsewhere, and for a run that goes on the one that it began with."""
        kind = before if before in ("adamw", "adamw-8bit") else "adamw-8bit" if device == "cuda" else "adamw"
        chosen: type[Optimizer] = registry.find("settings/optimizers", kind).Settings
        return chosen.model_validate(self.model_dump() | {"kind": kind})

    def settled_words(self, chosen: Optimizer, device: str) -> str:
        if chosen.kind == "adamw-8bit":
            return "adamw-8bit is taken; the run keeps it"
        return (
            f"8-bit moments need a GPU of CUDA, and this run is on {device}, so adamw is taken, with float32 moments; "
            "the run keeps it"
        )


Settings = AdamW8bitOrAdamW
