"""What a recipe leaves open, settled when a run starts and kept wherever it goes on: seeds of -1, one of two
optimizers, and rules that have changed since the run began."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.resume_rules import as_begun
from mezzotint.runtimes.base import Runtime
from mezzotint.tasks import optimizers
from mezzotint.tasks.train.resume import Start


def settled(
    recipe: Recipe, start: Start, runtime: Runtime, origin: Mapping[str, str], say: Callable[[str], None]
) -> tuple[Recipe, dict[str, str]]:
    """The recipe with nothing left open, the same on all processes, and the optimizers' names for the history where the
    recipe named two. start: what the run goes on from. origin: where settings were written. say: gets a sentence for
    each."""
    as_run = recipe.run.seed == -1  # one line of another trainer's sets both, and means one seed
    recipe = _with_seed(recipe, start, runtime, say)
    recipe = _with_seed_of_samples(recipe, start, runtime, say, recipe.run.seed if as_run else None)
    if start.checkpoint:
        recipe = as_begun(recipe, start.recipe)
    device = runtime.device.type
    recorded = start.recipe if start.checkpoint and optimizers.is_open(recipe) else None
    made = optimizers.settled(recipe, device, recorded)
    for sentence in optimizers.sentences(recipe, made, device, goes_on=recorded is not None, origin=origin):
        say(sentence)
    return made, optimizers.kinds(recipe, made)


def _with_seed(recipe: Recipe, start: Start, runtime: Runtime, say: Callable[[str], None]) -> Recipe:
    """A seed of -1 becomes the one that the checkpoint was trained with, or a new one."""
    if recipe.run.seed != -1:
        return recipe
    seed = int(runtime.share(str(start.seed if start.checkpoint else secrets.randbelow(2**30))))
    say(f"run.seed is -1: this run's seed is {seed}, {'kept' if start.checkpoint else 'drawn just now'}")
    return recipe.model_copy(update={"run": recipe.run.model_copy(update={"seed": seed})})


def _with_seed_of_samples(
    recipe: Recipe, start: Start, runtime: Runtime, say: Callable[[str], None], drawn: int | None
) -> Recipe:
    """A seed of -1 becomes a new one, which all previews of the run keep. drawn: the run's, where that is new, too."""
    if recipe.sample.seed != -1:
        return recipe
    new = secrets.randbelow(2**31) if drawn is None else drawn
    seed = int(runtime.share(str(start.sample_seed if start.checkpoint else new)))
    say(f"sample.seed is -1: this run's previews have seed {seed}, {'kept' if start.checkpoint else 'drawn just now'}")
    return recipe.model_copy(update={"sample": recipe.sample.model_copy(update={"seed": seed})})
