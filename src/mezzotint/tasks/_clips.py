"""Whether a model and a data set of clips go together: what is refused, what is only said."""

from __future__ import annotations

from mezzotint.errors import RecipeError
from mezzotint.families.base import Grid
from mezzotint.recipe.recipe import Recipe


def refuse_unfit(recipe: Recipe, grid: Grid) -> None:
    """Raises RecipeError E1292 for clips and a model of pictures. grid: of the model's latents."""
    if recipe.data.has_clips and grid.frames == 1:
        raise RecipeError(
            f"model.family={recipe.model.family} trains pictures, and data.format={recipe.data.format} gives clips; "
            "take a model of clips, or a data.format of pictures",
            code="E1292",
        )


def notes(recipe: Recipe, grid: Grid) -> list[str]:
    """A sentence for each number of frames of which the autoencoder gives back fewer."""
    clips, step = recipe.data.clips, grid.frames
    if not recipe.data.has_clips or step == 1:
        return []
    counts = sorted({frames for frames, _, _ in clips.buckets} or {clips.frames})
    return [
        f"clips of {frames} frames: the autoencoder gives {(frames - 1) // step * step + 1} of them back; {step} k + 1 "
        f"frames come back whole, such as {(frames - 1) // step * step + 1} or {-(-(frames - 1) // step) * step + 1}"
        for frames in counts
        if (frames - 1) % step
    ]
