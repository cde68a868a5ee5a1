"""Where a verb puts what it makes, when nobody said where; and what may not lie there."""

from __future__ import annotations

from pathlib import Path

from mezzotint import outside
from mezzotint.errors import RecipeError
from mezzotint.run_folder import RunFolder

_WRITTEN = b"# written by mezzotint"


def free_folder(folder: Path) -> Path:
    """The folder, or the first of FOLDER-2, FOLDER-3 … that is not there."""
    number, free = 1, folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free


def refuse_foreign_recipe(folder: RunFolder) -> None:
    """Raises RecipeError E1162 where a new run would write over a recipe that no run has put there."""
    is_run = folder.history.exists() or any(folder.checkpoints.glob("step-*"))
    if is_run or not folder.recipe.is_file():
        return
    with outside.open_plain(folder.recipe) as file:
        is_ours = file.read(len(_WRITTEN)) == _WRITTEN
    if not is_ours:
        raise RecipeError(
            f"{folder.recipe}: lies there already and no run has written it; choose another run.folder or run.name",
            code="E1162",
        )
