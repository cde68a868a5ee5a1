"""Text embedding files that a data set names: how a format handles missing ones before captions are encoded. A module
of the group `mezzotint.tasks.text_files`, named like the format, implements `EmbeddingWriter`."""

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

    def require(self, recipe: Recipe, arguments: Sequence[str]) -> None:
        """Raises CacheError when the files must be written first. arguments: the command's arguments, for the command
        line in the message."""

    def make(self, recipe: Recipe, files: ModelFiles, runtime: Runtime, say: Callable[[str], None]) -> int:
        """Writes the missing files, each process its share; returns the number that all have written. Raises
        WeightsError, StorageError, DatasetError."""


def require(recipe: Recipe, arguments: Sequence[str]) -> None:
    """See EmbeddingWriter; does nothing where no embedding comes from a file."""
    if (writer := _of_format(recipe)) is not None:
        writer.require(recipe, arguments)


def make(recipe: Recipe, files: ModelFiles, runtime: Runtime, say: Callable[[str], None]) -> int:
    """See EmbeddingWriter; 0 where no embedding comes from a file."""
    writer = _of_format(recipe)
    return 0 if writer is None else writer.make(recipe, files, runtime, say)


def _of_format(recipe: Recipe) -> EmbeddingWriter | None:
    name = recipe.data.format
    has_files = format_spec(name).reads_texts(recipe.data) and name in registry.names(FOLDER)
    return cast(EmbeddingWriter, registry.find(FOLDER, name)) if has_files else None
