"""What an exported model is called: `run.export.name`, filled in for the moment of the export."""

from __future__ import annotations

from mezzotint.recipe.recipe import Recipe
from mezzotint.training.trainer import Trainer


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
