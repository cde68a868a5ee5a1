"""The start of a new run's EMA when `optim.ema.start` names a model: that model's weights of the trained parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from mezzotint.errors import WeightsError
from mezzotint.families.base import ModelFamily
from mezzotint.settings.base import with_values
from mezzotint.settings.counting import format_names
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.model import ModelSettings


def settings_of(recipe: Recipe) -> ModelSettings | None:
    """The recipe's model with the files of `optim.ema.start`, or None when the EMA starts from the trained weights. A
    single file is read with the configurations of the trained model, which it must match."""
    start, model = recipe.optim.ema.start, recipe.model
    if start is None:
        return None
    config = model.config or (model.path if model.path.is_dir() and start.is_file() else None)
    return with_values(model, {"path": start, "config": config, "weights": "files"})


def weights(
    recipe: Recipe, kind: type[ModelFamily], trained: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor] | None:
    """The weights that the EMA starts from, by the names of `trained`, on the CPU; None without `optim.ema.start`.
    trained: shapes of the trained weights by name.

    Raises WeightsError E1401 to E1411 for files that cannot be used, E1417 for a model with other names or shapes.
    """
    settings = settings_of(recipe)
    if settings is None:
        return None
    family = kind.of(settings, {name.split("/")[0] for name in trained}, seed=recipe.run.seed)
    parameters = parameters_by_path(family.parts())
    refuse_another(settings.path, parameters, trained)
    return {name: parameters[name].detach() for name in trained}


def parameters_by_path(parts: Mapping[str, nn.Module]) -> dict[str, Tensor]:
    """All parameters of parts by `part/parameter`."""
    return {f"{part}/{name}": p for part, module in parts.items() for name, p in module.named_parameters()}


def refuse_another(path: Path, parameters: Mapping[str, Tensor], trained: Mapping[str, tuple[int, ...]]) -> None:
    """Compares a model's parameters with the shapes of the trained ones. Raises WeightsError E1417."""
    missing = [name for name in trained if name not in parameters]
    wrong = [name for name in trained if name in parameters and parameters[name].shape != trained[name]]
    if missing or wrong:
        parts = [
            f"{len(names)} trained weights {word} ({format_names(names, 3)})"
            for names, word in ((missing, "are not in it"), (wrong, "have another shape in it"))
            if names
        ]
        raise WeightsError(
            f"optim.ema.start: {path} is not the same model as the trained one: {'; '.join(parts)}; name a model "
            "of the same configuration, or leave optim.ema.start out",
            code="E1417",
        )
