"""New words of a recipe: those that it begins, and those that files bring, for a model's text encoders."""

from __future__ import annotations

from collections.abc import Iterable

from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.errors import RecipeError
from mezzotint.families.base import ModelFamily
from mezzotint.recipe.families.base import specs
from mezzotint.recipe.recipe import Recipe
from mezzotint.recipe.sections.tokens import PART
from mezzotint.weights.files import new_words
from mezzotint.weights.model_files import ModelFiles


def add_to(recipe: Recipe, files: ModelFiles, family: ModelFamily) -> None:
    """Makes the loaded text encoders know the words of `model.tokens`. Raises RecipeError E1473 for a family that takes
    none, WeightsError E1470 to E1472 and what reading files raises."""
    settings = recipe.model.tokens
    if not settings.are_there:
        return
    if not files.spec.has_new_words:
        taking = " and ".join(spec.name for spec in specs() if spec.has_new_words)
        raise RecipeError(
            f"model.tokens: model.family={recipe.model.family} takes no new words, {taking} do; leave it out",
            code="E1473",
        )
    rows = {word: new_words.read(path, family.text_parts) for word, path in settings.files.items()}
    family.add_words(settings.words, settings.vectors, rows)


def require_in_captions(recipe: Recipe, catalogue: Catalogue, rows: Iterable[int]) -> None:
    """Raises RecipeError E1474 for a word that is trained and stands in no caption of these rows. The first caption
    that has it ends the search."""
    settings = recipe.model.tokens
    for word in (*settings.words, *settings.files) if PART in recipe.model.train else ():
        small = word.lower()
        if not any(small in text.lower() for row in rows for text in catalogue.captions(int(row))):
            raise RecipeError(
                f"model.tokens: no caption has {word}, so that nothing would teach it; write it into captions, or let "
                f"data.captions.trigger={word} and a data.captions.template do so",
                code="E1474",
            )
