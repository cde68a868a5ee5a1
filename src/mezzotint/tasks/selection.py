"""What a recipe trains of a model, and whether it may."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from torch import nn

from mezzotint.adapters.trained import TrainedAdapter
from mezzotint.errors import RecipeError
from mezzotint.families.base import ModelFamily
from mezzotint.families.shared import learned_tokens as words_of_model
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.tokens import PART
from mezzotint.training import rates
from mezzotint.training.trainable import select_trained_parameters
from mezzotint.weights.model_files import ModelFiles


def require_trainable(recipe: Recipe, files: ModelFiles) -> None:
    """Raises WeightsError E1220 and E1221 for a model that the recipe does not allow to train, RecipeError E1296 if its
    condition images are not those that the model takes."""
    files.require_trainable()
    if files.inpaints != recipe.data.inpaint.is_on:
        if files.inpaints:
            message = f"{files.settings.path} inpaints, and the recipe has no regions to fill"
            raise RecipeError(f"{message}; write data.inpaint.masks=random", code="E1296")
        task = "set model.task=inpaint, which Stable Diffusion and SDXL allow"
        raise RecipeError(
            f"data.inpaint: {files.settings.path} does not inpaint; leave it out, or {task}", code="E1296"
        )
    names, taken = recipe.data.condition_names, files.condition_names
    conditions = (item for one in recipe.data.image_sets() for item in one.settings.conditions.items())
    own = [name for name, condition in conditions if condition.align == "own"]
    if own and files.needs_aligned_conditions:
        raise RecipeError(
            f"data.conditions.{own[0]}.align=own: this model takes the image as further channels, in the size of the "
            f"sample; write data.conditions.{own[0]}.align=target",
            code="E1296",
        )
    least = files.min_conditions
    if names == taken if least is None else len(names) >= least:
        return
    if least is not None:
        raise RecipeError(
            f"{files.settings.path} edits images, and the recipe has no data.conditions; write "
            "data.conditions.NAME.folder=FOLDER for each of its images, in their order",
            code="E1296",
        )
    if not taken:
        if files.animates:
            raise RecipeError(
                f"data.conditions: {files.settings.path} is given the first frame of each clip itself; leave them out",
                code="E1296",
            )
        edit = "" if "task" in files.spec.refuses else ", or set model.task=edit"
        edit += " (a single file may not say that its model edits)" if edit and files.settings.path.is_file() else ""
        message = f"data.conditions: {files.settings.path} generates from text alone; leave them out{edit}"
        raise RecipeError(message, code="E1296")
    needed = ", ".join(f"data.conditions.{name}.folder=FOLDER" for name in taken)
    problem = f"data.conditions has {', '.join(names)}" if names else "the recipe has no data.conditions"
    raise RecipeError(
        f"{files.settings.path} edits images, and {problem}; write {needed} alone, the images before the edits",
        code="E1296",
    )


def select_trained(
    recipe: Recipe, files: ModelFiles, family: ModelFamily, *, values: bool = True
) -> tuple[dict[str, nn.Parameter], TrainedAdapter | None]:
    """Freezes everything except what the recipe trains: the model's weights, or those of an adapter on it. Returns
    parameters by name. values: see `TrainedAdapter.put_on`. Raises what `select_trained_parameters` and
    `TrainedAdapter` raise, RecipeError E1022 and E1023 for patterns of `optim.part_lr`, and what
    `require_trainable` raises."""
    require_trainable(recipe, files)
    words_of_model.add_to(family, recipe.model)
    trainable = (*files.spec.trainable, *((PART,) if files.spec.supports_learned_tokens else ()))
    trained = select_trained_parameters(family.parts(), recipe.model, trainable)
    if not recipe.model.has_adapter:
        return _without_frozen(trained, rates.find_frozen(rates.names_to_match(trained), recipe.optim)), None
    adapter, token_prefix = TrainedAdapter.of(recipe.model, files), f"{PART}/"
    tokens = {name: parameter for name, parameter in trained.items() if name.startswith(token_prefix)}
    layers = rates.names_of_layers(adapter.layers)
    frozen = rates.find_frozen(layers | rates.names_to_match(tokens), recipe.optim)
    adapter.leave_out(frozen & layers.keys())
    factors = adapter.put_on(family.parts(), recipe.run.seed, values=values)
    return factors | _without_frozen(tokens, frozen), adapter


def _without_frozen(trained: Mapping[str, nn.Parameter], frozen: Collection[str]) -> dict[str, nn.Parameter]:
    """Freezes some of the trained parameters, and returns the others."""
    for name in frozen & trained.keys():
        trained[name].requires_grad_(False)
    return {name: parameter for name, parameter in trained.items() if name not in frozen}
