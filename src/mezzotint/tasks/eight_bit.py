"""The optimizer `adamw-8bit-or-adamw`, settled for a run: 8-bit moments on a GPU of CUDA, float32 ones elsewhere, and
for a run that goes on those that it began with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.sections.optim import (
    AdamW,
    AdamW8bit,
    AdamW8bitOrAdamW,
    OptimizerSettings,
    OptimSettings,
)

_EITHER = ("adamw", "adamw-8bit")


def is_open(recipe: Recipe) -> bool:
    """Whether the recipe leaves an optimizer to be settled."""
    return any(True for _ in _open(recipe.optim))


def settled(recipe: Recipe, device: str, recorded: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe with one optimizer or the other wherever it names both. device: the kind that the run computes on, as
    in `torch.device.type`. recorded: the recipe of the checkpoint that the run goes on from, as JSON."""
    if not is_open(recipe):
        return recipe
    optim = recipe.optim
    before = recorded["optim"] if recorded else {}
    by_part = {part: _one(rule, device, _kind(before, part)) for part, rule in optim.part_optimizer.items()}
    whole = _one(optim.optimizer, device, _kind(before, ""))
    update = {"optimizer": whole, "part_optimizer": by_part}
    return recipe.model_copy(update={"optim": optim.model_copy(update=update)})


def kinds(asked: Recipe, recipe: Recipe) -> dict[str, str]:
    """Where a recipe named both optimizers, by setting, which of them the settled one has."""
    ours = recipe.optim
    return {
        f"optim.part_optimizer.{part}.kind" if part else "optim.optimizer.kind": (
            ours.part_optimizer[part] if part else ours.optimizer
        ).kind
        for part in _open(asked.optim)
    }


def sentences(asked: Recipe, recipe: Recipe, device: str, *, goes_on: bool, origin: Mapping[str, str]) -> Iterator[str]:
    """What has been settled. goes_on: the run had it settled before. origin: where the recipe's settings were
    written."""
    for path, kind in kinds(asked, recipe).items():
        said = f"{path} ({origin[path]})" if path in origin else path
        if goes_on:
            yield f"{said} is adamw-8bit-or-adamw: this run's is {kind}, kept"
        elif kind == "adamw":
            yield (
                f"{said} is adamw-8bit-or-adamw: 8-bit moments need a GPU of CUDA, and this run is on {device}, so "
                "adamw is taken, with float32 moments; the run keeps it"
            )
        else:
            yield f"{said} is adamw-8bit-or-adamw: adamw-8bit is taken; the run keeps it"


def _open(optim: OptimSettings) -> Iterator[str]:
    """The parts whose optimizer is to be settled, "" for the one of all others."""
    for part, rule in {"": optim.optimizer, **optim.part_optimizer}.items():
        if isinstance(rule, AdamW8bitOrAdamW):
            yield part


def _one(rule: OptimizerSettings, device: str, before: str) -> OptimizerSettings:
    if not isinstance(rule, AdamW8bitOrAdamW):
        return rule
    if before not in _EITHER:
        before = "adamw-8bit" if device == "cuda" else "adamw"
    kind = AdamW8bit if before == "adamw-8bit" else AdamW
    return kind(betas=rule.betas, eps=rule.eps, weight_decay=rule.weight_decay, no_decay=rule.no_decay)


def _kind(optim: Mapping[str, Any], part: str) -> str:
    """The kind of optimizer that a recorded section gives a part."""
    whole = optim.get("optimizer", {})
    return str(optim.get("part_optimizer", {}).get(part, whole).get("kind", ""))
