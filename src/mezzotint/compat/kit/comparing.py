"""The settings of two recipes side by side, by path, so that equal meanings are equal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mezzotint.settings.reading.paths import settings
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import ImageSet
from mezzotint.settings.sections.sets import SetMask, SetSettings

View = dict[str, Any]
_ABSENT = object()
_OF_SHAPES = {"range": ("min_side", "max_side"), "aspect": ("max_aspect",), "list": ("sizes",)}
"""Settings of buckets that act with one shape only."""


def describe(recipe: Recipe) -> View:
    """The settings of a recipe by path, so that equal meanings are equal: every set of images at every size with all of
    its settings, the run folder, the size of prompts and the alpha of an adapter where the recipe leaves them out, the
    layers of an adapter without the names of parts where those do not matter, one name for each density, and the rate
    of the first trained part as that of all."""
    tree = recipe.model_dump(mode="json", by_alias=True)
    view: View = {}
    for path in (setting.path for setting in settings()):
        if path == "data.path":
            view |= _describe_sets(recipe)
        elif not _is_of_set(path) and path not in ("data.sets", "data.prior.path"):
            view[path] = _get(tree, path)
    adapter = recipe.model.adapter
    view["model.adapter.targets"] = _describe_targets(adapter.targets, recipe.model.train)
    if adapter.kind != "none" and adapter.alpha is None and not adapter.rank_pattern:
        view["model.adapter.alpha"] = float(adapter.rank)
    flow = recipe.objective.flow
    if flow.density == "logit-normal" and flow.mean == 0:  # the sigmoid of a normal number, too
        same = {"density": "sigmoid", "sigmoid_scale": flow.std, "std": 1.0}
        view |= {f"objective.flow.{name}": value for name, value in same.items()}
    if recipe.optim.part_lr.keys() <= {*recipe.model.train}:
        rates = {part: recipe.optim.part_lr.get(part, recipe.optim.lr) for part in recipe.model.train}
        view["optim.lr"] = first = next(iter(rates.values()), recipe.optim.lr)
        view["optim.part_lr"] = {part: rate for part, rate in rates.items() if rate != first}
    if recipe.sample.size is None and recipe.sample.prompts:
        view["sample.size"] = list(recipe.data.resolution[:1] * 2)
    view["run.folder"] = view["run.folder"] or f"runs/{recipe.run.name}"
    return {path: value for path, value in view.items() if value is not _ABSENT}


def _describe_targets(targets: Sequence[str], parts: Sequence[str]) -> list[str]:
    """Layers of an adapter without the names of parts, if each part has the same ones."""
    names = list(dict.fromkeys(one.partition("/")[2] or one for one in targets))
    every = {f"{part}/{name}" for part in parts for name in names}
    is_common = {*targets} == every or not any("/" in one for one in targets)
    return names if is_common else list(targets)


def _describe_sets(recipe: Recipe) -> View:
    """Every setting of every set of images; under `data` for a single one."""
    sets = [ImageSet(size, one.weight, one.is_class) for one in recipe.data.image_sets()
            for size in (one.sizes if one.settings.resolution_mode == "each" else (one.settings,))]  # fmt: skip
    has_entries = len(sets) > 1 or sets[0].is_class or sets[0].weight != 1.0
    names = [setting.path for setting in settings() if _is_of_set(setting.path)]
    view: View = {}
    for number, one in enumerate(sets):
        start = f"data.sets.{number}" if has_entries else "data"
        tree = {"data": one.settings.model_dump(mode="json", by_alias=True)}
        unused = {f"data.buckets.{key}" for shape, keys in _OF_SHAPES.items() for key in keys
                  if shape != one.settings.buckets.shape}  # fmt: skip
        view |= {start + name.removeprefix("data"): _get(tree, name) for name in names if name not in unused}
        view |= {f"{start}.class_images": one.is_class, f"{start}.weight": one.weight} if has_entries else {}
    return view


def find_differences(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> set[str]:
    """The paths whose values differ, of those in `expected`."""
    return {path for path, value in expected.items() if not _is_same(value, actual.get(path))}


def _is_same(first: Any, second: Any) -> bool:
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_is_same, first, second))
    if isinstance(first, float) and isinstance(second, float):
        return math.isclose(first, second, rel_tol=1e-9)
    return bool(first == second)


def _is_of_set(path: str) -> bool:
    """Whether each set of images may have its own value of a setting."""
    section, name, rest = f"{path}..".split(".", 2)
    own = name in SetSettings.model_fields
    return section == "data" and own and (name != "mask" or rest.strip(".") in SetMask.model_fields)


def _get(tree: Any, path: str) -> Any:
    for part in path.split("."):
        if not isinstance(tree, dict) or part not in tree:
            return _ABSENT
        tree = tree[part]
    return tree
