"""Seeds of -1: a new one is drawn where a run is made ready, looked at or measured; a run that goes on keeps its
own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from mezzotint.recipe.base import with_values
from mezzotint.recipe.recipe import Recipe


def settle(
    recipe: Recipe,
    recorded: Mapping[str, Any] | None,
    say: Callable[[str], None],
    *,
    share: Callable[[str], str] = str,
    is_run: bool = False,
) -> Recipe:
    """The recipe with each seed of -1 as that of the checkpoint that the run goes on from, or as a new one. Where both
    are new, they are one: one line of another trainer's sets both, and means one seed.

    recorded: the checkpoint's recipe, as JSON. share: what the first process says, on all. is_run: a run has this seed
    from here on; otherwise it is of this look alone. say: gets a sentence for each."""
    seeds: dict[str, int] = {}
    whose = "this run's" if is_run or recorded else "a new run draws its own; here, the"
    how = "kept" if recorded else "drawn just now"
    if recipe.run.seed == -1:
        seed = recorded["run"]["seed"] if recorded else secrets.randbelow(2**30)
        seeds["run.seed"] = int(share(str(seed)))
        say(f"run.seed is -1: {whose} seed is {seeds['run.seed']}, {how}")
    if recipe.sample.seed == -1:
        seed = seeds.get("run.seed", secrets.randbelow(2**31))
        if recorded:
            seed = recorded.get("sample", {}).get("seed", 0)
            seed = recorded["run"]["seed"] if seed == -1 else seed
        seeds["sample.seed"] = int(share(str(seed)))
        say(f"sample.seed is -1: {whose} previews have seed {seeds['sample.seed']}, {how}")
    return with_values(recipe, seeds)
