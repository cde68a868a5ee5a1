"""What a run works out when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.run import GradientSums

SUMS = "run.gradient_dtype"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Everything that a recipe leaves open, worked out once at the start of a run from the recipe, the data set, the
    machine and the checkpoint that it resumes from.

    recipe: its paths and hub names are folders, its seeds numbers, its optimizers of one kind.
    steps: length of the run.
    ema_decay: of the average of the weights.
    rate_factor: every learning rate is multiplied by it.
    gradient_sums: type in which gradients are summed, "same" for that of the weights (`run.gradient_dtype`).
    blocks_on_device: blocks of the denoiser on the device at once, None for all of them (`run.offload.blocks`).
    choices: setting → what was chosen for it, as JSON, for the history and the checkpoints.
    code: the user's callbacks and loss function, by name and source hash (`mezzotint.train`).
    """

    recipe: Recipe
    steps: int
    ema_decay: float
    rate_factor: float = 1.0
    gradient_sums: GradientSums = "same"
    blocks_on_device: int | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """The seed of all draws."""
        return self.recipe.run.seed


def sums_are_open(recipe: Recipe) -> bool:
    """Whether memory decides the type of gradient sums: float32 weights have float32 sums, and so does
    `run.runtime=fsdp`."""
    run = recipe.run
    is_small = run.precision != "fp32" and run.weight_dtype != "fp32"
    return run.gradient_dtype == "auto" and is_small and run.runtime != "fsdp"


def gradient_sums(recipe: Recipe) -> GradientSums:
    """As the recipe says; "auto" that nothing has decided counts as "same"."""
    return "fp32" if recipe.run.gradient_dtype == "fp32" else "same"


def blocks_on_device(recipe: Recipe) -> int | None:
    """As the recipe says; "auto" that nothing has decided counts as 2, the fewest there can be."""
    blocks = recipe.run.offload.blocks
    return 2 if blocks == "auto" else blocks
