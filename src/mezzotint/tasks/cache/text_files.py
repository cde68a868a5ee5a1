"""Text embeddings in files that a data set names: what the format does about those that are missing, before captions
are encoded. A module of the group `mezzotint.tasks.text_files`, by the format's name, offers what `EmbeddingWriter`
lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, cast

from mezzotint import registry
from mezzotint.runtimes.base import Runtime
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.recipe import Recipe
from mezzotint.weights.model_files import ModelFiles

FOLDER = "tasks/text_files"


class EmbeddingWriter(Protocol):
    """Writes the files of text embeddings that a data set of one format names."""

    def require(self, recipe: Recipe, words: Sequence[str]) -> None:
        """Raises CacheError when the files have to be written first. words: what stood behind the command, for the line
        that the message prints."""

    def make(self, recipe: Recipe, files: ModelFiles, runtime: Runtime, say: Callable[[str], None]) -> int:
        """Writes the missing files, each process its share; returns how many were written by all. Raises WeightsError,
        StorageError, DatasetError."""


def require(recipe: Recipe, words: Sequence[str]) -> None:
    """See EmbeddingWriter; nothing is required where no embedding comes from a file."""
    if (own := _of_format(recipe)) is not None:
        own.require(recipe, words)


def make(recipe: Recipe, files: ModelFiles, runtime: Runtime, say: Callable[[str], None]) -> int:
    """See EmbeddingWriter; 0 where no embedding comes from a file."""
    own = _of_format(recipe)
    return 0 if own is None else own.make(recipe, files, runtime, say)


def _of_format(recipe: Recipe) -> EmbeddingWriter | None:
    name = recipe.data.format
    has_files = format_spec(name).reads_texts(recipe.data) and name in registry.names(FOLDER)
    return cast(EmbeddingWriter, registry.find(FOLDER, name)) if has_files else None
