"""What a run writes for others: the model as a folder, as one file besides, or what was trained of it alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from mezzotint import durable
from mezzotint.errors import RecipeError
from mezzotint.recipe.families.base import spec_of
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.sections.run import ExportSettings
from mezzotint.run_folder import RunFolder
from mezzotint.tasks.assemble import Model
from mezzotint.tasks.convert.convert import single_file_of
from mezzotint.weights.files import mindspore


def require_possible(recipe: Recipe) -> None:
    """Raises RecipeError E1092 for files that the family's models are not written as."""
    asked = recipe.run.export
    styles = spec_of(recipe.model.family).file_styles
    if asked.parts == "trained" and not styles:
        raise RecipeError(
            f"run.export.parts: models of family {recipe.model.family} are written as whole folders alone; write all",
            code="E1092",
        )
    if asked.trained_file != "none" and not styles:
        raise RecipeError(
            f"run.export.trained_file: models of family {recipe.model.family} are written as whole folders alone; "
            "write none",
            code="E1092",
        )
    if asked.trained_file == "mindspore" and "mindspore" not in styles:
        raise RecipeError(
            f"run.export.trained_file: models of family {recipe.model.family} are not written as checkpoints of "
            "MindSpore's, those of sdxl are; write safetensors",
            code="E1092",
        )
    if asked.mindspore and "mindspore" not in styles:
        raise RecipeError(
            f"run.export.mindspore: models of family {recipe.model.family} are not written as checkpoints of "
            "MindSpore's, those of sdxl are; leave it out",
            code="E1092",
        )


def write(
    model: Model, recipe: Recipe, asked: ExportSettings, place: Path, name: str, weights: Mapping[str, Tensor]
) -> Path:
    """Writes weights, trained ones by `part/parameter`, under a name into the folder `place`, as `asked` says. Returns
    the folder, or the file of what was trained. Raises what exporting raises, StorageError E1701."""
    ending = mindspore.SUFFIX if asked.mindspore else ".safetensors"
    if asked.parts == "trained":
        return _trained(model, recipe, asked, place, f"{name}{ending}", weights)
    target = place / name
    # an earlier one goes when the new one is whole
    aside = place / f".partial-{name}" if target.exists() else target
    with durable.storage_errors(target):
        durable.remove_tree(aside) if aside != target else None
        model.family.export(
            aside,
            model.files,
            weights=weights,
            dtype=asked.dtype,
            schedule=model.objective.schedule,
            trained_form=model.objective.parameterization,
        )
        if aside != target:
            durable.remove_tree(target)
            aside.rename(target)
            durable.sync_folder(target.parent)
    if asked.single_file:
        single_file_of(target, asked.single_file_folder or target.parent, asked.single_file_dtype, ending)
    return target


def write_trained(
    model: Model, recipe: Recipe, asked: ExportSettings, place: Path, name: str, weights: Mapping[str, Tensor]
) -> list[Path]:
    """The file of `run.export.trained_file` beside what `write` writes; none where that is the same, or none is asked
    for. Raises as `write`."""
    ending = mindspore.SUFFIX if asked.trained_file == "mindspore" else ".safetensors"
    is_written = asked.parts == "trained" and asked.mindspore == (asked.trained_file == "mindspore")
    if asked.trained_file == "none" or is_written:
        return []
    return [_trained(model, recipe, asked, place, f"{name}{ending}", weights)]


def _trained(
    model: Model, recipe: Recipe, asked: ExportSettings, place: Path, file: str, weights: Mapping[str, Tensor]
) -> Path:
    target = (asked.single_file_folder or place) / file
    with durable.storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        on_cpu = {n: t.detach().cpu() for n, t in weights.items()}
        dtype = asked.single_file_dtype or asked.dtype
        model.family.export_parts(target, recipe.model.train, model.files, weights=on_cpu, dtype=dtype)
    return target


def is_made(folder: RunFolder, step: int) -> bool:
    """Whether the export of a step was written since the run last came to that step from an earlier one."""
    for event in reversed(folder.events()):
        match event.get("event"), event.get("step"):
            case "exported", int(at) if at == step:
                return True
            case "started" | "resumed", int(at) if at < step:
                return False
    return False
