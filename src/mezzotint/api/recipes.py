"""`mezzotint.recipe`: a recipe from a file, a name or a run folder, with settings on top. Imports no torch."""

from __future__ import annotations

import os
from pathlib import Path

from mezzotint.settings.reading.read import Reading, digest_of
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.reading.arguments import parse

LoadedRecipe = Reading
"""A recipe that was read: `.recipe` has the settings, `.notes` what was changed or ignored."""


def recipe(source: str | Path, *arguments: str) -> LoadedRecipe:
    """Loads a recipe, exactly as the command `mezzotint train SOURCE ARGUMENTS…` does.

    source: a YAML file, the name of a recipe that ships (`mezzotint ls`), or a run folder. arguments:
    settings, `key=value`, and options of the command line. `.recipe` of the result has the settings.

    Raises RecipeError with all problems.
    """
    return parse([os.fspath(source), *arguments], "train")


def as_loaded(source: LoadedRecipe | Recipe) -> LoadedRecipe:
    """A loaded recipe from settings created in Python; a loaded recipe is returned unchanged."""
    if isinstance(source, LoadedRecipe):
        return source
    return LoadedRecipe(source, source.run.name, None, {}, digest_of(source))
