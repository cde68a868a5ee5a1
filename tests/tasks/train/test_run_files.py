"""What a start writes into the run folder, and over what it never writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mezzotint.errors import RecipeError
from mezzotint.run_folder import RunFolder
from mezzotint.tasks.train import run_files


def test_a_new_run_never_writes_over_a_recipe_that_is_not_its_own(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path).open()
    run_files.refuse_foreign_recipe(folder)
    folder.recipe.write_text("# mine\nschema: 1\n")
    with pytest.raises(RecipeError, match=r"recipe\.yaml: lies there already") as caught:
        run_files.refuse_foreign_recipe(folder)
    assert caught.value.code == "E1162"
    folder.record("started", step=0)  # a run's own, which its owner may have edited
    run_files.refuse_foreign_recipe(folder)
    folder.history.unlink()
    folder.recipe.write_text(run_files.FIRST_LINE)
    run_files.refuse_foreign_recipe(folder)
