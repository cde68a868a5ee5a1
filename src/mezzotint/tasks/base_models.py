"""The model without what is trained, and preservation by its prediction, from a recipe."""

from __future__ import annotations

from contextlib import nullcontext

import torch

from mezzotint.adapters.trained import TrainedAdapter
from mezzotint.adapters.under import put_under
from mezzotint.data.schedule.preserved import PreservedCaptions
from mezzotint.families.base import ModelFamily
from mezzotint.runtimes.base import Runtime
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.tokens import PART
from mezzotint.tasks import holding
from mezzotint.tasks.prompts import cleaning
from mezzotint.training.precision.policy import Precision
from mezzotint.training.preservation import BaseModel, Preservation
from mezzotint.weights.folder.state import EmptyOnMeta
from mezzotint.weights.model_files import ModelFiles


def list_captions(recipe: Recipe) -> PreservedCaptions | None:
    """The captions for which the base's prediction is preserved, beside those of the data; None if there are none."""
    preserve = recipe.objective.preserve
    if not preserve.adds_pass:
        return None
    prompts = tuple(cleaning.clean_prompt(text, recipe.data.captions) for text in preserve.prompts)
    return PreservedCaptions(preserve.kind, prompts, recipe.model.tokens.all)


def open_frozen_copy(
    recipe: Recipe, files: ModelFiles, family: ModelFamily, runtime: Runtime, precision: Precision
) -> ModelFamily | None:
    """The family with another, frozen copy of each trained part, and the same networks otherwise; None if the recipe
    asks for none."""
    if not recipe.objective.preserve.frozen_copy:
        return None
    kind, parts = type(family), [part for part in recipe.model.train if part in files.parts]
    with nullcontext() if runtime.has_values else EmptyOnMeta():
        copy = kind.load(files, parts, {part: precision.form_of(part) for part in parts})
    put_under(recipe.model.under, files, copy.parts())
    device = runtime.device if runtime.has_values else torch.device("meta")
    holding.freeze(copy, recipe, precision, device)
    shared = {part: module for part, module in family.parts().items() if part in files.parts}
    return kind(files, {**shared, **copy.parts()})


def open_base(
    recipe: Recipe, family: ModelFamily, copy: ModelFamily | None, adapter: TrainedAdapter | None
) -> BaseModel | None:
    """The model without what is trained; None where the recipe keeps none (`Recipe.contradictions`)."""
    if copy is not None:
        return BaseModel(copy)
    has_base = (adapter is not None or recipe.model.train == (PART,)) and recipe.model.adapter.init != "pissa"
    return BaseModel(family, adapter) if has_base else None


def open_preservation(recipe: Recipe, family: ModelFamily, base: BaseModel | None) -> Preservation | None:
    """Preservation by the base's prediction; None for a recipe without."""
    if not recipe.objective.preserve.is_on:
        return None
    assert base is not None
    return Preservation(recipe.objective.preserve, base, family, bool(recipe.model.trained_encoders))
