"""Mezzotint trains latent diffusion models.

    import mezzotint as mz

    run = mz.train(mz.recipe("mini", "data.path=photos", "run.steps=200"))
    images = mz.sample(run.export, ["a red star"], seed=1)

Importing the package imports nothing else: each name below imports its module at its first use, so that `mezzotint
--help` and a mistyped recipe are answered without torch. See docs/guides/python.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mezzotint.api.datasets import ImageDataset
    from mezzotint.api.images import sample, sample_clips
    from mezzotint.api.recipes import LoadedRecipe, recipe
    from mezzotint.api.runs import Run
    from mezzotint.api.training import OpenTrainer, open_trainer, train
    from mezzotint.errors import MezzotintError, RecipeError
    from mezzotint.settings.base import Every
    from mezzotint.stages import StepReport
    from mezzotint.training.callbacks.base import Action, Callback
    from mezzotint.training.progress import Progress
    from mezzotint.training.user_code import LossBatch

__version__ = "0.1.0"

_MODULES = {
    "Action": "training.callbacks.base",
    "Callback": "training.callbacks.base",
    "Every": "settings.base",
    "ImageDataset": "api.datasets",
    "LoadedRecipe": "api.recipes",
    "LossBatch": "training.user_code",
    "MezzotintError": "errors",
    "OpenTrainer": "api.training",
    "Progress": "training.progress",
    "RecipeError": "errors",
    "Run": "api.runs",
    "StepReport": "stages",
    "open_trainer": "api.training",
    "recipe": "api.recipes",
    "sample": "api.images",
    "sample_clips": "api.images",
    "train": "api.training",
}
"""The module of each name."""

__all__ = [
    "Action", "Callback", "Every", "ImageDataset", "LoadedRecipe", "LossBatch", "MezzotintError", "OpenTrainer",
    "Progress", "RecipeError", "Run", "StepReport", "open_trainer", "recipe", "sample", "sample_clips", "train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mezzotint' has no attribute {name!r}")
    importlib.import_module("mezzotint.api")  # first: it quiets libraries
    return getattr(importlib.import_module(f"mezzotint.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
