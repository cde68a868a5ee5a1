"""What all sections share: other values in a section, and old words for new ones."""

from __future__ import annotations

from pathlib import Path

from mezzotint.recipe.base import with_values
from mezzotint.recipe.reading.read import read_text
from mezzotint.recipe.recipe import Recipe


def test_other_values_lie_at_their_paths_and_nothing_else_changes() -> None:
    recipe = Recipe()
    other = with_values(recipe, {"run.seed": 7, "run.export.folder": Path("x"), "data.cache.latents": True})
    assert (other.run.seed, other.run.export.folder, other.data.cache.latents) == (7, Path("x"), True)
    assert (recipe.run.seed, recipe.run.export.folder, recipe.data.cache.latents) == (0, None, False)
    assert with_values(other, {"run.seed": 0, "run.export.folder": None, "data.cache.latents": False}) == recipe
    assert "latents" in other.data.cache.model_fields_set


def test_an_old_word_is_read_with_a_note() -> None:
    for words, weights, notes in (
        ("shadow", "ema", ("run.preview.weights: shadow is now called ema",)),
        ("ema", "ema", ()),
        ("both", "both", ()),
    ):
        reading = read_text(f"schema: 1\nrun: {{preview: {{weights: {words}}}}}\n")
        assert (reading.recipe.run.preview.weights, reading.notes) == (weights, notes)
