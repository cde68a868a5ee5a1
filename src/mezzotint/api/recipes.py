"""`mezzotint.recipe`: a recipe from a file, a name or a run folder, with settings on top. Imports no torch."""

from __future__ import annotations

import os
from pathlib import Path

from mezzotint.settings.reading.read import Reading, digest_of
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.reading.arguments import parse

LoadedRecipe = Reading
"""A recipe as it was read: `.recipe` holds the settings, `.notes` what was changed or left out on the way."""


def recipe(source: str | Path, *words: str) -> LoadedRecipe:
    """Loads a recipe, exactly as the command `mezzotint train SOURCE WORDS…` does.

    source: a YAML file, the name of a recipe that ships (`mezzotint ls`), or a run folder. words: settings,
    `key=value`, and options of the command line. `.recipe` of the result holds the settings.

    Raises RecipeError with every problem that was found.
    """
    return parse([os.fspath(source), *words], "train")


def as_loaded(source: LoadedRecipe | Recipe) -> LoadedRecipe:
    """The same for settings that were made in Python."""
    if isinstance(source, LoadedRecipe):
        return source
    return LoadedRecipe(source, source.run.name, None, {}, digest_of(source))
