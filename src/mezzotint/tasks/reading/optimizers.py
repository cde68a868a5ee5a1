"""Optimizers that a recipe leaves open, settled for a run by the device that it computes on; a run that goes on keeps
its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mezzotint.recipe.base import with_values
from mezzotint.recipe.recipe import Recipe


@dataclass(frozen=True, slots=True)
class SettledOptimizers:
    """recipe: with one optimizer wherever it left that open. sentences: what has been settled. kinds: what it is, by
    setting."""

    recipe: Recipe
    sentences: tuple[str, ...]
    kinds: Mapping[str, str]


def settle(
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
