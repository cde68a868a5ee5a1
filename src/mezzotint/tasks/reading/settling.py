"""What a recipe leaves open and a run settles when it is made ready, looked at or measured: seeds of -1, and optimizers
that depend on the device. A run that goes on keeps its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mezzotint.recipe.base import with_values
from mezzotint.recipe.recipe import Recipe


def settle_seeds(
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


def keep_gradient_sums(recipe: Recipe, recorded: Mapping[str, Any]) -> Recipe:
    """The recipe with the type of its gradients' sums as the run settled it, where the recipe leaves it open.
    recorded: the checkpoint's recipe, as JSON."""
    if recipe.run.gradient_sums != "auto":
        return recipe
    return with_values(recipe, {"run.gradient_sums": recorded["run"]["gradient_sums"]})


@dataclass(frozen=True, slots=True)
class SettledOptimizers:
    """recipe: with one optimizer wherever it left that open. sentences: what has been settled. kinds: what it is, by
    setting."""

    recipe: Recipe
    sentences: tuple[str, ...]
    kinds: Mapping[str, str]


def settle_optimizers(
    recipe: Recipe,
    device: str,
    *,
    recorded: Mapping[str, Any] | None = None,
    origin: Mapping[str, str] = MappingProxyType({}),
) -> SettledOptimizers:
    """Chooses where a recipe leaves an optimizer open. device: the kind that the run computes on, as in
    `torch.device.type`. recorded: the recipe of the checkpoint that the run goes on from, as JSON. origin: where the
    recipe's settings were written."""
    before = recorded["optim"] if recorded else {}
    by_part = {"": recipe.optim.optimizer, **recipe.optim.part_optimizer}
    chosen = {part: one.settled(device, _kind(before, part)) for part, one in by_part.items()}
    sentences, kinds = [], {}
    for part, one in by_part.items():
        if one.is_open:
            path = f"optim.part_optimizer.{part}.kind" if part else "optim.optimizer.kind"
            kinds[path] = chosen[part].kind
            setting = f"{path} ({origin[path]})" if path in origin else path
            kept = f"this run's is {chosen[part].kind}, kept"
            sentences.append(
                f"{setting} is {one.kind}: {kept if recorded else one.settled_words(chosen[part], device)}"
            )
    if not kinds:
        return SettledOptimizers(recipe, (), kinds)
    values = {"optim.optimizer": chosen.pop(""), "optim.part_optimizer": chosen}
    return SettledOptimizers(with_values(recipe, values), tuple(sentences), kinds)


def _kind(optim: Mapping[str, Any], part: str) -> str:
    whole = optim.get("optimizer", {})
    return str(optim.get("part_optimizer", {}).get(part, whole).get("kind", ""))
