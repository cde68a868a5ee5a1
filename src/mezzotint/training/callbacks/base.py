"""The callback interface. Callbacks request actions; the trainer acts. To add one: a class in this folder, its settings
in `settings/sections/run.py`.

A callback that fails because of the disk never ends the training: the trainer warns once and continues.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mezzotint import registry
from mezzotint.errors import StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.runtimes.base import Runtime
from mezzotint.sampling.requests import Request
from mezzotint.settings.base import Every
from mezzotint.settings.sections.run import RunSettings
from mezzotint.settings.sections.sample import SampleSettings
from mezzotint.stages import Batch, StepReport
from mezzotint.training.model import TrainableModel
from mezzotint.training.progress import Progress


class Action(Flag):
    """What a callback may request from the trainer."""

    NOTHING = 0
    SAVE = auto()
    EXPORT = auto()
    STOP = auto()


class Callback(ABC):
    """Called between two steps.

    every: interval at which it is due, by default every step; None for never. intervals: several intervals instead. A
    callback that is due gets the report of the last step, which the trainer waits for; with
    `receives_delayed_reports` it gets every report one step late instead, without waiting, and its requests are
    ignored. at_start, at_end: also due before the first step, without a report, and at the end. on_all_ranks: whether
    it is called in every process, for collective work, or in the first only. An error that it raises ends the run,
    except StorageError, which becomes a warning.
    """

    every: Every | None = Every(1, "steps")
    intervals: tuple[Every, ...] = ()
    receives_delayed_reports: bool = False
    at_start: bool = False
    at_end: bool = False
    on_all_ranks: bool = False
    generates_on_request: bool = False
    """Whether it is also called when previews are requested (`training.requests`)."""
    order: int = 0
    """Order of the callbacks that are due at the same step: lower values first."""

    def due(self, progress: Progress) -> bool:
        """Whether it is due after the last step. The trainer handles intervals in minutes."""
        if progress.step == progress.first_step:
            return self.at_start
        if progress.is_done and self.at_end:
            return True
        return any(is_due(every, progress) for every in self.intervals or (self.every,))

    @property
    def minutes(self) -> float:
        """The shortest of its intervals in minutes; infinite without one."""
        minutes = [
            every.count for every in self.intervals or (self.every,) if every is not None and every.unit == "minutes"
        ]
        return min(minutes, default=math.inf)

    @abstractmethod
    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Called with a step's report, or None before the first step. Returns the requested action."""

    def state(self) -> dict[str, Any]:
        """The state for the checkpoint, as JSON."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:  # noqa: B027  most have no state
        """Restores a result of `state`."""

    def numbers(self, step: int, values: Mapping[str, float]) -> None:  # noqa: B027  most ignore them
        """Receives numbers that another callback measured after `step` steps."""

    def image(self, step: int, name: str, pixels: NDArray[np.uint8]) -> None:  # noqa: B027  most ignore them
        """Receives an image, uint8 (H, W, 3), that another callback generated."""

    def on_settings_changed(self, run: RunSettings, sample: SampleSettings) -> None:  # noqa: B027  most have no live settings
        """Called when settings were changed during the run (`run.live`)."""

    def close(self) -> None:  # noqa: B027  most hold nothing open
        """Called when the run has ended, successfully or not."""


def is_due(every: Every | None, progress: Progress) -> bool:
    """Whether an interval of steps or epochs ends with the last step. The trainer handles minutes."""
    if every is None or progress.step == progress.first_step:
        return False
    if every.unit == "epochs":
        return progress.epoch_ends and (progress.epoch + 1) % int(every.count) == 0
    return every.unit == "steps" and progress.step % int(every.count) == 0


class PreviewSource(Protocol):
    """Prompts and interval of previews. every: None for never. at_start: whether also before the first step."""

    every: Every | None
    at_start: bool

    def renew(self, step: int) -> None:
        """Reloads the prompts before the previews of a step, on all processes together; may change `every`."""

    def of_step(self, step: int) -> PreviewRequests:
        """The requests for the previews of a step; called in the first process only, after `renew`."""


@dataclass(frozen=True, slots=True)
class PreviewRequests:
    """The previews of a step. requests: one for each prompt and guidance scale; with text embeddings if the family's
    text encoder is not loaded. settings: for everything that the requests do not set."""

    requests: Sequence[Request]
    settings: SampleSettings


@dataclass(frozen=True, slots=True)
class DriftPrompt:
    """A prompt that is measured (`run.drift`). request: with its text embedding if the text encoder is not loaded.
    of_base: the same for the base, which does not know learned tokens."""

    request: Request
    of_base: Request


@dataclass(frozen=True, slots=True)
class Setup:
    """What callbacks are created from. recipe: as plain values. line: the live line. start_step: the step at which the
    run resumes, or 0. is_saving: whether this process is writing a checkpoint in the background. measures: whether
    samples are held out. held_out: gives them, by the name of their set, at most so many of each if a number is given.
    previews: gives the prompts; drift: those of the meter, by group. decode: latents to pixels. every_callback: filled
    when all callbacks have been created."""

    run: RunSettings
    recipe: Mapping[str, Any]
    runtime: Runtime
    folder: RunFolder
    model: TrainableModel
    line: Callback
    say: Callable[[str], None]
    warn: Callable[[str], None]
    start_step: int
    is_saving: Callable[[], bool]
    measures: bool
    held_out: Callable[[int | None], Mapping[str, Sequence[Batch]]]
    previews: Callable[[], PreviewSource]
    drift: Callable[[], Mapping[str, Sequence[DriftPrompt]]]
    decode: Callable[[Tensor], Tensor]
    every_callback: list[Callback] = field(default_factory=list)

    @property
    def computes(self) -> bool:
        """Whether this process computes with the networks between steps: the first, and all that share the weights."""
        return self.runtime.is_first or bool(self.runtime.shares)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Passes numbers to all callbacks. If one raises StorageError, it is raised after the others were called."""
        self._call_all(lambda callback: callback.numbers(step, values))

    def image(self, step: int, name: str, pixels: NDArray[np.uint8]) -> None:
        """Passes an image to all callbacks. If one raises StorageError, it is raised after the others were called."""
        self._call_all(lambda callback: callback.image(step, name, pixels))

    def _call_all(self, call: Callable[[Callback], None]) -> None:
        failed: StorageError | None = None
        for callback in self.every_callback if self.runtime.is_first else ():
            try:
                call(callback)
            except StorageError as error:
                failed = error
        if failed is not None:
            raise failed


def open_callbacks(setup: Setup, additional: Sequence[Callback] = ()) -> list[Callback]:
    """Creates every callback that the settings enable, adds `additional`, and sorts them in the same order on every
    process. `run.callbacks` enables those of other packages."""
    named = {name.replace("_", "-") for name in setup.run.callbacks}
    names = sorted({*registry.names("training/callbacks", skip_unimported=True), *named})
    modules = [registry.find("training/callbacks", name) for name in names]
    callbacks: list[Callback] = [callback for module in modules for callback in module.create_callbacks(setup)]
    callbacks += additional
    callbacks.sort(key=lambda callback: callback.order)
    setup.every_callback.extend(callbacks)
    return callbacks
