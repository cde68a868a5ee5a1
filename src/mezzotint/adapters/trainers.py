"""How other trainers name the tensors of their adapters, from a table."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass

from mezzotint.adapters.files import Layout
from mezzotint.assets import TRAINER_LAYOUTS


@dataclass(frozen=True, slots=True)
class Spelling:
    """How an adapter is written. layout: its tensors. prefix: of a denoiser's names, in place of the layout's.
    uses_diffusers_paths: where the layout has original ones. joins_fused: also where ComfyUI reads the parts of a fused
    layer. has_alpha: False multiplies the strength into `lora_B`."""

    layout: Layout
    prefix: str = ""
    uses_diffusers_paths: bool = False
    joins_fused: bool = False
    has_alpha: bool = True


def load() -> dict[str, dict[str, Spelling]]:
    """The spelling of each trainer, by family; `other` for the rest."""
    table = tomllib.loads(TRAINER_LAYOUTS.read_text("utf-8"))
    return {
        trainer: {family: Spelling(**entry) for family, entry in entries.items() if family != "basis"}
        for trainer, entries in table.items()
    }


def find_spelling(name: str, family: str) -> Spelling:
    """How an adapter of a family is written in a layout or for a trainer. Raises KeyError for an unknown name."""
    match name:
        case "diffusers" | "kohya" | "comfy":
            return Spelling(name)
    trainer = load()[name]
    return trainer.get(family, trainer["other"])
