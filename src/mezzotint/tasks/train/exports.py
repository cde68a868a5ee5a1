"""What a run writes for others, and under which name: the model as a folder, as one file besides, or what was trained
of it alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from mezzotint import durable
from mezzotint.errors import RecipeError
from mezzotint.recipe.families.base import family_spec
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.sections.run import ExportSettings
from mezzotint.run_folder import RunFolder
from mezzotint.tasks.convert.convert import single_file_of
from mezzotint.training.model import TrainableModel
from mezzotint.training.trainer import Trainer
from mezzotint.weights.files import mindspore


def require_possible(recipe: Recipe) -> None:
    """Raises RecipeError E1092 for files that the family's models are not written as."""
    settings = recipe.run.export
    styles = family_spec(recipe.model.family).file_styles
    if settings.parts == "trained" and not styles:
        raise RecipeError(
            f"run.export.parts: models of family {recipe.model.family} are written as whole folders alone; write all",
            code="E1092",
        )
    if settings.trained_file != "none" and not styles:
        raise RecipeError(
            f"run.export.trained_file: models of family {recipe.model.family} are written as whole folders alone; "
            "write none",
            code="E1092",
        )
    if settings.trained_file == "mindspore" and "mindspore" not in styles:
        raise RecipeError(
            f"run.export.trained_file: models of family {recipe.model.family} are not written as checkpoints of "
            "MindSpore's, those of sdxl are; write safetensors",
            code="E1092",
        )
    if settings.mindspore and "mindspore" not in styles:
        raise RecipeError(
            f"run.export.mindspore: models of family {recipe.model.family} are not written as checkpoints of "
            "MindSpore's, those of sdxl are; leave it out",
            code="E1092",
        )


def name_of(recipe: Recipe, trainer: Trainer, ema: str = "", *, alone: bool = False) -> str:
    """The name of an export as the trainer stands. ema: "_ema" for the average, "" for the trained weights. alone: of
    the file with the trained parts, beside whole models."""
    template, progress = recipe.run.export.name or "step-{step:08}", trainer.progress
    parts = "-".join("unet" if part == "denoiser" else part for part in recipe.model.train)
    if alone and "{what" not in template:
        template = f"{{what}}-{template}"
    name = template.format(
        name=recipe.run.name, step=progress.step, ema=ema,
        what=recipe.run.name if recipe.run.export.parts == "all" and not alone else parts,
        epoch=progress.epoch + 1 if progress.epoch_ends or progress.is_done else progress.epoch,
        micro_step=-(-progress.samples // recipe.data.batch_size),
        last="last-" if progress.is_done else "interrupted-" if trainer.stopped else "",
    )  # fmt: skip
    return name if not ema or "{ema" in template else f"{name}-ema"


def write(
    model: TrainableModel,
    recipe: Recipe,
    settings: ExportSettings,
    place: Path,
    name: str,
    weights: Mapping[str, Tensor],
) -> Path:
    """Writes weights, trained ones by `part/parameter`, under a name into the folder `place`. Returns the folder, or
    the file of what was trained. Raises what exporting raises, StorageError E1701."""
    ending = mindspore.SUFFIX if settings.mindspore else ".safetensors"
    if settings.parts == "trained":
        return _trained(model, recipe, settings, place, f"{name}{ending}", weights)
    target = place / name
    # an earlier one goes when the new one is whole
    aside = place / f".partial-{name}" if target.exists() else target
    with durable.storage_errors(target):
        durable.remove_tree(aside) if aside != target else None
        model.family.export(
            aside,
            model.files,
            weights=weights,
            dtype=settings.dtype,
            schedule=model.objective.schedule,
            trained_form=model.objective.parameterization,
        )
        if aside != target:
            durable.remove_tree(target)
            aside.rename(target)
            durable.sync_folder(target.parent)
    if settings.single_file:
        single_file_of(target, settings.single_file_folder or target.parent, settings.single_file_dtype, ending)
    return target


def write_trained(
    model: TrainableModel,
    recipe: Recipe,
    settings: ExportSettings,
    place: Path,
    name: str,
    weights: Mapping[str, Tensor],
) -> list[Path]:
    """The file of `run.export.trained_file` beside what `write` writes; none where that is the same, or none is asked
    for. Raises as `write`."""
    ending = mindspore.SUFFIX if settings.trained_file == "mindspore" else ".safetensors"
    is_written = settings.parts == "trained" and settings.mindspore == (settings.trained_file == "mindspore")
    if settings.trained_file == "none" or is_written:
        return []
    return [_trained(model, recipe, settings, place, f"{name}{ending}", weights)]


def _trained(
    model: TrainableModel,
    recipe: Recipe,
    settings: ExportSettings,
    place: Path,
    file: str,
    weights: Mapping[str, Tensor],
) -> Path:
    target = (settings.single_file_folder or place) / file
    with durable.storage_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        on_cpu = {n: t.detach().cpu() for n, t in weights.items()}
        dtype = settings.single_file_dtype or settings.dtype
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
