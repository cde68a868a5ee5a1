"""Optimizers that a recipe leaves open, settled for a run by the device that it computes on; a run that goes on keeps
its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mezzotint.recipe.base import with_values
from mezzotint.recipe.optimizers.base import Optimizer
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.sections.optim import OptimSettings


def is_open(recipe: Recipe) -> bool:
    """Whether the recipe leaves an optimizer to be settled."""
    return any(one.is_open for one in by_part(recipe.optim).values())


def settled(recipe: Recipe, device: str, recorded: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe with one optimizer wherever it leaves that open. device: the kind that the run computes on, as
    in `torch.device.type`. recorded: the recipe of the checkpoint that the run goes on from, as JSON."""
    if not is_open(recipe):
        return recipe
    optim = recipe.optim
    before = recorded["optim"] if recorded else {}
    parts = {part: one.settled(device, _kind(before, part)) for part, one in by_part(optim).items()}
    return with_values(recipe, {"optim.optimizer": parts.pop(""), "optim.part_optimizer": parts})


def sentences(asked: Recipe, recipe: Recipe, device: str, *, goes_on: bool, origin: Mapping[str, str]) -> Iterator[str]:
    """What has been settled. goes_on: the run had it settled before. origin: where the recipe's settings were
    written."""
    for path, (open_one, chosen) in _settled_pairs(asked, recipe).items():
        setting = f"{path} ({origin[path]})" if path in origin else path
        words = f"this run's is {chosen.kind}, kept" if goes_on else open_one.settled_words(chosen, device)
        yield f"{setting} is {open_one.kind}: {words}"


def kinds(asked: Recipe, recipe: Recipe) -> dict[str, str]:
    """Where a recipe left an optimizer open, by setting, which one the settled recipe has."""
    return {path: chosen.kind for path, (_, chosen) in _settled_pairs(asked, recipe).items()}


def _settled_pairs(asked: Recipe, recipe: Recipe) -> dict[str, tuple[Optimizer, Optimizer]]:
    settled_ones = by_part(recipe.optim)
    return {
        f"optim.part_optimizer.{part}.kind" if part else "optim.optimizer.kind": (one, settled_ones[part])
        for part, one in by_part(asked.optim).items()
        if one.is_open
    }


def by_part(optim: OptimSettings) -> dict[str, Optimizer]:
    """The optimizer of each part that has one of its own, "" for that of all others."""
    return {"": optim.optimizer, **optim.part_optimizer}


def _kind(optim: Mapping[str, Any], part: str) -> str:
    """The kind of optimizer that a recorded section gives a part."""
    whole = optim.get("optimizer", {})
    return str(optim.get("part_optimizer", {}).get(part, whole).get("kind", ""))
