"""The run's curves and previews for Weights & Biases, under the same tags as TensorBoard's. Needs the extra `wandb`.

One W&B run for one run folder, over all its attempts. A failure is reported once and never ends the training.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint.errors import RecipeError, StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.settings.sections.run import WandbSettings
from mezzotint.training.callbacks._scalars import ScalarLog
from mezzotint.training.callbacks.base import Callback, Setup


class WandbLog(ScalarLog):
    """Sends scalars of every `every`-th step, the first and the last; and the numbers and images of other callbacks.

    settings: `run.wandb`, its mode online or offline. recipe: as plain values. Raises RecipeError E1063 if the package
    is not installed. The package handles server and login (`wandb login`).
    """

    def __init__(
        self,
        folder: RunFolder,
        settings: WandbSettings,
        every: int,
        *,
        name: str,
        recipe: Mapping[str, Any],
        num_timesteps: int = 1000,
    ) -> None:
        super().__init__(every, num_timesteps)
        self._wandb = package(settings)
        self._folder = folder
        self._settings = settings
        self._name = name
        self._recipe = dict(recipe)
        self._id = ""
        self._run: Any = None
        self._has_failed = False

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Sends scalars of a step or of another callback. Raises StorageError E1705, once."""
        self._send(step, dict(values))

    def image(self, step: int, name: str, pixels: NDArray[np.uint8]) -> None:
        """Sends an image, uint8 (H, W, 3), under `preview/NAME`. Raises StorageError E1705, once."""
        self._send(step, {f"preview/{name}": self._wandb.Image(pixels)})

    def state(self) -> dict[str, Any]:
        return {**super().state(), "id": self._id}

    def load(self, state: Mapping[str, Any]) -> None:
        super().load(state)
        self._id = str(state.get("id", ""))

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()
            self._run = None

    def _send(self, step: int, values: Mapping[str, Any]) -> None:
        if self._has_failed:
            return
        try:
            if self._run is None:
                self._open()
            # a separate step value: steps after a checkpoint may be sent again by a later attempt
            self._run.log({"step": step, **values})
        except Exception as error:  # the package may raise anything; no error of it may end the training
            self._has_failed = True
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise StorageError(
                f"Weights & Biases rejected the data ({reason}); `wandb login`, or run.wandb.mode=offline", code="E1705"
            ) from error

    def _open(self) -> None:
        self._id = self._id or f"{time.time_ns():x}"
        self._run = self._wandb.init(
            project=self._settings.project,
            name=self._name,
            id=self._id,
            resume="allow",
            mode=self._settings.mode,
            dir=str(self._folder.logs),
            config=self._recipe,
            settings=self._wandb.Settings(
                console="off", silent=True, disable_git=True, save_code=False, init_timeout=60
            ),
        )
        self._run.define_metric("*", step_metric="step")


def package(settings: WandbSettings) -> Any:
    """Imports the library, which takes a second. Raises RecipeError E1063."""
    try:
        return importlib.import_module("wandb")
    except ImportError as error:
        raise RecipeError(
            f"run.wandb.mode is {settings.mode}, but the package wandb is not installed; "
            "pip install 'mezzotint[wandb]', or set run.wandb.mode=off",
            code="E1063",
        ) from error


def create_callbacks(setup: Setup) -> Iterator[Callback]:
    """Enabled by `run.wandb.mode`."""
    run = setup.run
    if run.wandb.mode != "off":
        timesteps = setup.model.objective.schedule.num_timesteps
        yield WandbLog(
            setup.folder, run.wandb, run.log_every, name=run.name, recipe=setup.recipe, num_timesteps=timesteps
        )
