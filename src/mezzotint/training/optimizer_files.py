"""Files in which another program keeps the state of its optimizer, read at the start of a run (`run.start.optimizer`)
and written beside checkpoints (`run.export.optimizer_file`).

A module of the group `mezzotint.optimizer_files` reads and writes one kind of them and offers what
`OptimizerFiles` lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, cast

from mezzotint import registry
from mezzotint.errors import RecipeError
from mezzotint.families.base import ModelFamily
from mezzotint.training.update import Update

FOLDER = "training/optimizer_files"


class OptimizerFiles(Protocol):
    """Reads and writes the optimizer's state in one program's form."""

    def is_readable(self, path: Path) -> bool:
        """Whether a file is of this kind; false for one that cannot be opened."""

    def check(self, update: Update, family: ModelFamily) -> None:
        """Raises RecipeError E1076 for an optimizer or a model whose state such a file cannot hold."""

    def restore(self, path: Path, update: Update, family: ModelFamily) -> list[str]:
        """Takes the state of a file into the optimizer. Returns sentences on what was restored and what was not. Raises
        RecipeError E1076 for a file of another model, WeightsError for one that cannot be read."""

    def write(self, folder: Path, update: Update, family: ModelFamily, rates: Sequence[float] | None) -> None:
        """Writes the file into a folder. rates: that of every step of the run; None where it is constant. Raises
        RecipeError E1076, StorageError."""


def named(name: str) -> OptimizerFiles:
    """The kind of this name. Raises RecipeError E1010 with the nearest name when there is none."""
    return cast(OptimizerFiles, registry.find(FOLDER, name))


def reader_of(path: Path) -> OptimizerFiles:
    """The kind that reads a file. Raises RecipeError E1076 when none does."""
    for name in registry.names(FOLDER):
        if named(name).is_readable(path):
            return named(name)
    raise RecipeError(
        f"run.start.optimizer: {path} is not the optimizer's file of a program that is known here "
        f"({', '.join(registry.names(FOLDER)) or 'none'}); leave it out, and its state begins at zero",
        code="E1076",
    )
