"""What a run computes at its start from its recipe and its data set: its length, and everything in `Resolved`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from mezzotint.data.schedule.plan import Timeline
from mezzotint.errors import DatasetError, RecipeError
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.resolved import SUMS, Resolved, blocks_on_device, gradient_sums, has_open_gradient_dtype
from mezzotint.settings.resume_rules import DEFAULT_STEPS
from mezzotint.settings.sections.run import GradientSums
from mezzotint.training.ema import decay_for


def resolve(
    recipe: Recipe,
    steps: int,
    *,
    sums: GradientSums | None = None,
    blocks: int | Literal["auto"] | None = "auto",
    choices: Mapping[str, Any] = MappingProxyType({}),
) -> Resolved:
    """What a run of so many steps computes at its start. sums, blocks: chosen by memory if the recipe leaves them open,
    otherwise as in `recipe.resolved`. choices: made before, such as of an optimizer."""
    ema = recipe.optim.ema
    decay = ema.decay if ema.strength is None else decay_for(ema.strength, interval=ema.interval, steps=steps)
    sums = sums or gradient_sums(recipe)
    chosen: dict[str, Any] = {"seed": recipe.run.seed} | ({} if ema.strength is None else {"ema_decay": decay})
    chosen |= dict(choices) | (
        {SUMS: sums} if has_open_gradient_dtype(recipe) or recipe.run.gradient_dtype != "auto" else {}
    )
    blocks = blocks_on_device(recipe) if blocks == "auto" else blocks
    return Resolved(recipe, steps, decay, rate_factor(recipe), sums, blocks, chosen)


def rate_factor(recipe: Recipe) -> float:
    """The factor of all learning rates: (batch size × accumulation) to the power of `optim.lr_batch_power`."""
    return float((recipe.data.batch_size * recipe.optim.accumulation) ** recipe.optim.lr_batch_power)


def length_in_steps(recipe: Recipe, timeline: Timeline) -> int:
    """The run's length in steps: as written, or computed from its epochs, plus `run.extend`. Raises DatasetError E1207
    if an epoch, with integer repeats, has no batch."""
    longer, epochs = recipe.run.extend, recipe.run.epochs
    if longer is None:
        return _planned_length(recipe, timeline)
    if longer.unit == "steps":
        return _planned_length(recipe, timeline) + int(longer.count)
    if epochs is not None:
        return timeline.steps_until(epochs + longer.count)
    return _planned_length(recipe, timeline) + timeline.steps_until(longer.count)


def _planned_length(recipe: Recipe, timeline: Timeline) -> int:
    if recipe.data.remainder == "drop" and timeline.epoch(0).num_batches == 0 and recipe.data.repeats == 1.0:
        raise DatasetError(
            f"data.remainder is drop and no bucket has data.batch_size={recipe.data.batch_size} images, so "
            "there is no batch; write data.remainder=short, or a smaller data.batch_size",
            code="E1207",
        )
    if recipe.run.steps is not None:
        return _count_whole_epoch_steps(recipe, timeline) if recipe.run.whole_epochs else recipe.run.steps
    if recipe.run.epochs is not None:
        return max(1, timeline.steps_until(recipe.run.epochs))
    return DEFAULT_STEPS


def _count_whole_epoch_steps(recipe: Recipe, timeline: Timeline) -> int:
    """The steps of the whole epochs within `run.steps`. Raises RecipeError E1881 if there is none."""
    most = recipe.run.steps or 0
    steps = most - timeline.locate(most)[1]
    if not steps:
        least = timeline.steps_until(1)
        raise RecipeError(
            f"run.steps is {most}, and an epoch has {least} steps, so run.whole_epochs leaves no step; write "
            f"run.steps={least} or more, or run.whole_epochs=false",
            code="E1881",
        )
    return steps
