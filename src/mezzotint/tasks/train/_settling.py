"""What a recipe leaves open, settled when a run starts and kept wherever it goes on: seeds of -1, one of two
optimizers, and rules that have changed since the run began."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping

from mezzotint.recipe.base import with_values
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
    recipe = with_values(recipe, _seeds(recipe, start, runtime, say))
    if start.checkpoint:
        recipe = as_begun(recipe, start.recipe)
    device = runtime.device.type
    recorded = start.recipe if start.checkpoint and optimizers.is_open(recipe) else None
    settled_recipe = optimizers.settled(recipe, device, recorded)
    for sentence in optimizers.sentences(recipe, settled_recipe, device, goes_on=recorded is not None, origin=origin):
        say(sentence)
    return settled_recipe, optimizers.kinds(recipe, settled_recipe)


def _seeds(recipe: Recipe, start: Start, runtime: Runtime, say: Callable[[str], None]) -> dict[str, int]:
    """Seeds of -1, by path: those that the checkpoint was trained with, or new ones. Where both are new, they are one:
    one line of another trainer's sets both, and means one seed."""
    how = "kept" if start.checkpoint else "drawn just now"
    seeds: dict[str, int] = {}
    if recipe.run.seed == -1:
        seed = start.seed if start.checkpoint else secrets.randbelow(2**30)
        seeds["run.seed"] = int(runtime.share(str(seed)))
        say(f"run.seed is -1: this run's seed is {seeds['run.seed']}, {how}")
    if recipe.sample.seed == -1:
        new = seeds.get("run.seed", secrets.randbelow(2**31))
        seeds["sample.seed"] = int(runtime.share(str(start.sample_seed if start.checkpoint else new)))
        say(f"sample.seed is -1: this run's previews have seed {seeds['sample.seed']}, {how}")
    return seeds
