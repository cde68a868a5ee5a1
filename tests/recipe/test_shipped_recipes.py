"""What the shipped recipes have in common."""

from __future__ import annotations

import pytest

from mezzotint.recipe.reading.read import read, shipped_recipes


@pytest.mark.parametrize("name", [name for name in shipped_recipes() if name.startswith(("sd15", "sd21", "sdxl"))])
def test_a_model_of_full_size_leaves_one_small_file_for_programs_that_draw(name: str) -> None:
    export = read(name).recipe.run.export
    assert export.single_file
    assert export.single_file_dtype == "fp16"
