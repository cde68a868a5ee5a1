"""Whether a model and a data set of clips go together: what is refused, what is only said."""

from __future__ import annotations

from mezzotint.data.buckets import buckets
from mezzotint.errors import RecipeError
from mezzotint.families.base import Grid
from mezzotint.recipe.recipe import Recipe


def refuse_unfit(recipe: Recipe, grid: Grid) -> None:
    """Raises RecipeError E1292 for clips and a model of pictures, E1464 for sizes that the model cannot take apart.
    grid: of the model's latents."""
    if recipe.data.has_clips and grid.frames == 1:
        raise RecipeError(
            f"model.family={recipe.model.family} trains pictures, and data.format={recipe.data.format} gives clips; "
            "take a model of clips, or a data.format of pictures",
            code="E1292",
        )
    _refuse_sides(recipe, grid)


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


def _refuse_sides(recipe: Recipe, grid: Grid) -> None:
    for size in buckets.table(recipe.data):
        if size.width % grid.side or size.height % grid.side:
            raise RecipeError(
                f"batches of {size.width}×{size.height} cannot be trained: the sides of this model's pictures are "
                f"multiples of {grid.side}; write data.buckets.step={grid.side} or a multiple of it, and such a "
                "data.resolution, or sides of data.clips.buckets that are",
                code="E1464",
            )


def drawn_frames(recipe: Recipe, grid: Grid, own: int = 1) -> int:
    """How many frames a drawn clip has; 1 is a picture. own: of clips that the model was made for, where it alone is
    drawn from. Raises RecipeError E1464 for a clip of a model of pictures."""
    asked = recipe.sample.clip.frames
    if grid.frames == 1:
        if asked is not None and asked > 1:
            raise RecipeError(
                f"sample.clip.frames is {asked}, and model.family={recipe.model.family} draws pictures; leave it out",
                code="E1464",
            )
        return 1
    return asked or (recipe.data.clips.frames if recipe.data.has_clips else own)
