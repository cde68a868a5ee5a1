"""What a recipe leaves open and a run chooses at its start: seeds of -1, and optimizers that depend on the device. A
resumed run keeps its choices."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from mezzotint.settings.base import with_values
from mezzotint.settings.recipe import Recipe


@dataclass(frozen=True, slots=True)
class ChosenRecipe:
    """recipe: with everything chosen that does not depend on the data set or on memory. sentences: about each choice,
    for the user. kinds: chosen optimizers, by setting."""

    recipe: Recipe
    sentences: tuple[str, ...]
    kinds: Mapping[str, str]


def choose(
    recipe: Recipe,
    device: str,
    recorded: Mapping[str, Any] | None = None,
    *,
    origin: Mapping[str, str] = MappingProxyType({}),
    share: Callable[[str], str] = str,
    is_run: bool = False,
) -> ChosenRecipe:
    """Chooses what a recipe leaves open: seeds and optimizers.

    device: the kind that the run computes on, as in `torch.device.type`. recorded: the recipe of the checkpoint that
    the run resumes from, as JSON. origin: where the recipe's settings were written. share: broadcasts the first
    process's text to all processes. is_run: whether a run starts; otherwise the chosen seeds are used only by this
    command."""
    seeds, about_seeds = _seeds(recipe, recorded, share, is_run=is_run)
    optimizers, about_optimizers, kinds = _optimizers(recipe, device, recorded, origin)
    return ChosenRecipe(with_values(recipe, seeds | optimizers), (*about_seeds, *about_optimizers), kinds)


def choose_seeds(
    recipe: Recipe, recorded: Mapping[str, Any] | None = None, share: Callable[[str], str] = str
) -> tuple[Recipe, list[str]]:
    """`choose` for the seeds only, for commands that inspect a run; with a sentence for each."""
    seeds, sentences = _seeds(recipe, recorded, share, is_run=False)
    return with_values(recipe, seeds), sentences


def _seeds(
    recipe: Recipe, recorded: Mapping[str, Any] | None, share: Callable[[str], str], *, is_run: bool
) -> tuple[dict[str, int], list[str]]:
    """Each seed of -1 as that of the checkpoint, or a new one, by setting. If both are new they are equal: the command
    lines of other trainers have one seed for both."""
    sentences: list[str] = []
    seeds: dict[str, int] = {}
    whose = "this run's" if is_run or recorded else "a new run draws another; here, the"
    verb = "kept" if recorded else "drawn just now"
    if recipe.run.seed == -1:
        seed = recorded["run"]["seed"] if recorded else secrets.randbelow(2**30)
        seeds["run.seed"] = int(share(str(seed)))
        sentences.append(f"run.seed is -1: {whose} seed is {seeds['run.seed']}, {verb}")
    if recipe.sample.seed == -1:
        seed = seeds.get("run.seed", secrets.randbelow(2**31))
        if recorded:
            seed = recorded.get("sample", {}).get("seed", 0)
            seed = recorded["run"]["seed"] if seed == -1 else seed
        seeds["sample.seed"] = int(share(str(seed)))
        sentences.append(f"sample.seed is -1: {whose} previews have seed {seeds['sample.seed']}, {verb}")
    return seeds, sentences


def _optimizers(
    recipe: Recipe, device: str, recorded: Mapping[str, Any] | None, origin: Mapping[str, str]
) -> tuple[dict[str, Any], list[str], dict[str, str]]:
    """The optimizer settings with every open choice made, and a sentence and the kind of each."""
    before = recorded["optim"] if recorded else {}
    by_part = {"": recipe.optim.optimizer, **recipe.optim.part_optimizer}
    chosen = {part: optimizer.choose_kind(device, _kind(before, part)) for part, optimizer in by_part.items()}
    sentences: list[str] = []
    kinds: dict[str, str] = {}
    for part, optimizer in by_part.items():
        if optimizer.is_open:
            path = f"optim.part_optimizer.{part}.kind" if part else "optim.optimizer.kind"
            kinds[path] = chosen[part].kind
            setting = f"{path} ({origin[path]})" if path in origin else path
            kept_kind = f"this run's is {chosen[part].kind}, kept"
            reason = kept_kind if recorded else optimizer.explain_choice(chosen[part], device)
            sentences.append(f"{setting} is {optimizer.kind}: {reason}")
    if not kinds:
        return {}, sentences, kinds
    return {"optim.optimizer": chosen.pop(""), "optim.part_optimizer": chosen}, sentences, kinds


def _kind(optim: Mapping[str, Any], part: str) -> str:
    whole = optim.get("optimizer", {})
    return str(optim.get("part_optimizer", {}).get(part, whole).get("kind", ""))
