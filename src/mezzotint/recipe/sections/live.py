"""The few settings that may be replaced while a run goes, at the start of an epoch. The recipe itself never changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar

from mezzotint.recipe.base import Section, with_values
from mezzotint.recipe.recipe import Recipe

LIVE = (
    "objective.noise_offset",
    "objective.zero_terminal_snr",
    "objective.min_snr_gamma",
    "model.clip_skip",
    "run.save.every",
    "run.export.every",
    "run.export.from_epoch",
    "run.export.dtype",
    "run.export.single_file_dtype",
    "sample.guidance_rescale",
)
"""The settings, by path."""

SINCE_ZERO = ("objective.zero_terminal_snr", "sample.guidance_rescale")
"""Those of them that runs of before could not change."""

S = TypeVar("S", bound=Section)


def live_values(recipe: Recipe) -> dict[str, Any]:
    """Their values in a recipe, as JSON, by path."""
    tree = recipe.model_dump(mode="json", by_alias=True)
    return {path: reduce(lambda inside, word: inside[word], path.split("."), tree) for path in LIVE}


def with_live(recipe: Recipe, values: Mapping[str, Any]) -> Recipe:
    """The recipe with other values of live settings, checked as any. values: as `live_values` gives them; those that
    are not named stay. Raises pydantic's ValidationError."""
    for path, value in values.items():
        assert path in LIVE, path
        recipe = replaced(recipe, path.split("."), value)
    return recipe


def replaced(section: S, words: Sequence[str], value: Any) -> S:
    """The section with another value of one setting, checked as any. words: of its path. value: as JSON. Raises
    pydantic's ValidationError."""
    name, *inside = words
    if inside:
        return with_values(section, {name: replaced(getattr(section, name), inside, value)})
    given = section.model_dump(mode="json", by_alias=True) | {name: value}
    return type(section).model_validate(given)
