"""The verb `cache`: encode the pictures and captions of a recipe once, ahead of the training, and say how many were
made and why. `train` fills the cache through the same `fill` before its first step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mezzotint.errors import RecipeError
from mezzotint.recipe.read import located
from mezzotint.recipe.recipe import Recipe
from mezzotint.runtimes.base import Launch, Runtime, open_runtime
from mezzotint.tasks import assemble, watchers
from mezzotint.tasks._arguments import parse
from mezzotint.tasks._filling import CacheSummary, fill

__all__ = ["CacheSummary", "fill", "run"]


def run(arguments: Sequence[str]) -> int:
    """`mezzotint cache RECIPE key=value …`. Under torchrun each process encodes its share.

    Every entry is read and checked, not only looked for. Raises RecipeError E1306 when the recipe caches nothing, and
    as `fill` does.
    """
    recipe = located(parse(arguments, "cache"))
    if not (recipe.data.cache.latents or recipe.data.cache.text):
        raise RecipeError(
            "the recipe caches nothing; add data.cache.latents=true, data.cache.text=true, or both", code="E1306"
        )
    runtime = open_runtime(recipe.run, Launch.read())
    try:
        summary = fill_for(recipe, runtime)
    finally:
        runtime.close()
    if runtime.is_first:
        for line in summary.lines():
            print(line)
    return 0


def fill_for(recipe: Recipe, runtime: Runtime) -> CacheSummary:
    """Fills the caches of a recipe, held-out pictures and preview prompts included, and checks every entry."""
    kind = assemble.family_class(recipe)
    dataset = assemble.open_dataset(recipe, runtime)
    caches = assemble.open_caches(recipe, kind)
    if recipe.run.seed == -1 and caches.latents is not None and any(caches.latents.seeds):
        raise RecipeError(
            "run.seed is -1, drawn when a run starts, and what is cached depends on it (crops, flips or kept draws); "
            "write run.seed=NUMBER, or let mezzotint train fill the cache",
            code="E1307",
        )
    return fill(
        dataset.catalogue,
        np.sort(np.concatenate([dataset.rows, dataset.held])),
        recipe.data,
        latents=caches.latents,
        text=caches.text,
        load=assemble.encoders(recipe, kind, runtime.device),
        device=runtime.device,
        extra_captions=watchers.preview_captions(recipe, dataset),
        rank=runtime.rank,
        world_size=runtime.world_size,
        barrier=runtime.barrier,
        say=lambda line: print(line, flush=True),
        verify_bytes=None,
    )
