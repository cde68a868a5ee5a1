"""Optimizer state files of other programs, read at the start of a run (`run.start.optimizer`) and written next to
checkpoints (`run.export.optimizer_file`).

A module of the group `mezzotint.optimizer_files` reads and writes one format and implements `OptimizerFiles`.
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
    """Reads and writes the optimizer's state in one program's format."""

    def is_readable(self, path: Path) -> bool:
        """Whether a file has this format; false if it cannot be opened."""

    def check(self, update: Update, family: ModelFamily) -> None:
        """Raises RecipeError E1076 for an optimizer or a model whose state the format cannot store."""

    def restore(self, path: Path, update: Update, family: ModelFamily) -> list[str]:
        """Loads the state of a file into the optimizer. Returns sentences about what was restored and what was not.
        Raises RecipeError E1076 for a file of another model, WeightsError for one that cannot be read."""

    def write(self, folder: Path, update: Update, family: ModelFamily, rates: Sequence[float] | None) -> None:
        """Writes the file into a folder. rates: learning rate of every step of the run; None if constant. Raises
        RecipeError E1076, StorageError."""


def find_format(name: str) -> OptimizerFiles:
    """The format with this name. Raises RecipeError E1010 with the nearest name if there is none."""
    return cast(OptimizerFiles, registry.find(FOLDER, name))


def reader_of(path: Path) -> OptimizerFiles:
    """The format of a file. Raises RecipeError E1076 if no format can read it."""
    for name in registry.names(FOLDER):
        if find_format(name).is_readable(path):
            return find_format(name)
    raise RecipeError(
        f"run.start.optimizer: {path} is not an optimizer file of a supported program "
        f"({', '.join(registry.names(FOLDER)) or 'none'}); without the setting, the optimizer state starts at zero",
        code="E1076",
    )
