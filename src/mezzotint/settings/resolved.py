"""The values that a run computes when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.run import GradientSums

SUMS = "run.gradient_dtype"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Everything that a recipe leaves open, computed once at the start of a run from the recipe, the data set, the
    machine and the checkpoint that it resumes from.

    recipe: with resolved paths, hub names, seeds and optimizers.
    steps: length of the run.
    ema_decay: of the average of the weights.
    rate_factor: every learning rate is multiplied by it.
    gradient_sums: type in which gradients are summed, "same" for that of the weights (`run.gradient_dtype`).
    blocks_on_device: blocks of the denoiser on the device at once, None for all of them (`run.offload.blocks`).
    choices: setting → chosen value, as JSON, for the history and the checkpoints.
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
        """The seed of all random draws."""
        return self.recipe.run.seed


def has_open_gradient_dtype(recipe: Recipe) -> bool:
    """Whether memory decides the type of gradient sums. Not with float32 weights or `run.runtime=fsdp`, which sum in
    float32."""
    run = recipe.run
    is_small = run.precision != "fp32" and run.weight_dtype != "fp32"
    return run.gradient_dtype == "auto" and is_small and run.runtime != "fsdp"


def gradient_sums(recipe: Recipe) -> GradientSums:
    """The type of gradient sums; an undecided "auto" counts as "same"."""
    return "fp32" if recipe.run.gradient_dtype == "fp32" else "same"


def blocks_on_device(recipe: Recipe) -> int | None:
    """The number of blocks on the device; an undecided "auto" counts as 2, the minimum."""
    blocks = recipe.run.offload.blocks
    return 2 if blocks == "auto" else blocks
