"""What watches a run. Callbacks look and ask for actions; the trainer acts. To add one: a class here, its settings in
`settings/sections/run.py`.

A callback that fails because the disk does never ends the training: the trainer says so once and goes on.
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
    """What a callback may ask of the trainer."""

    NOTHING = 0
    SAVE = auto()
    EXPORT = auto()
    STOP = auto()


class Callback(ABC):
    """Called between two steps.

    every: when it is due, at every step unless said otherwise; None is never. intervals: the same where there may be
    several. A callback that is due sees the report of the step just taken, which the trainer waits for; with `follows`
    it gets every report one step late instead, without waiting, and what it asks for is ignored. at_start, at_end:
    also before the first step, without a report, and at the end. on_all_ranks: whether it is called in every process,
    for collective work, or in the first only. An error that it raises ends the run, except StorageError, of which the
    run warns.
    """

    every: Every | None = Every(1, "steps")
    intervals: tuple[Every, ...] = ()
    follows: bool = False
    at_start: bool = False
    at_end: bool = False
    on_all_ranks: bool = False
    draws_when_asked: bool = False
    """Whether it also looks when pictures are asked for (`training.requests`)."""
    place: int = 0
    """Of several that are due at a step, those with a higher place come later."""

    def due(self, progress: Progress) -> bool:
        """Whether it wants to look after the step just made. Intervals in minutes are the trainer's business."""
        if progress.step == progress.first_step:
            return self.at_start
        if progress.is_done and self.at_end:
            return True
        return any(is_due(every, progress) for every in self.intervals or (self.every,))

    @property
    def minutes(self) -> float:
        """The shortest of its intervals in minutes; infinite without one."""
        every = [one.count for one in self.intervals or (self.every,) if one is not None and one.unit == "minutes"]
        return min(every, default=math.inf)

    @abstractmethod
    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Looks at a step's report (None before the first step)."""

    def state(self) -> dict[str, Any]:
        """What it remembers, as JSON, for the checkpoint."""
        return {}

    def load(self, state: Mapping[str, Any]) -> None:  # noqa: B027  most remember nothing
        """Takes back what `state` gave."""

    def numbers(self, step: int, values: Mapping[str, float]) -> None:  # noqa: B027  most take none
        """Takes what another callback has measured after `step` steps."""

    def picture(self, step: int, name: str, pixels: NDArray[np.uint8]) -> None:  # noqa: B027  most take none
        """Takes a picture, uint8 (H, W, 3), that another callback has drawn."""

    def replaced(self, run: RunSettings, sample: SampleSettings) -> None:  # noqa: B027  most have no live settings
        """Settings were replaced while the run goes (`run.live`)."""

    def close(self) -> None:  # noqa: B027  most hold nothing open
        """The run has ended, one way or another."""


def is_due(every: Every | None, progress: Progress) -> bool:
    """Whether an interval of steps or epochs ends with the step just made. Minutes are the trainer's business."""
    if every is None or progress.step == progress.first_step:
        return False
    if every.unit == "epochs":
        return progress.epoch_ends and (progress.epoch + 1) % int(every.count) == 0
    return every.unit == "steps" and progress.step % int(every.count) == 0


class PreviewSource(Protocol):
    """Says what previews are drawn from, and when. every: None for never; at_start: whether before the first step,
    too."""

    every: Every | None
    at_start: bool

    def renew(self, step: int) -> None:
        """Looks anew before the previews of a step, on every process together; `every` may be another one then."""

    def of_step(self, step: int) -> PreviewRequests:
        """What the previews of a step are drawn from; asked in the first process alone, after `renew`."""


@dataclass(frozen=True, slots=True)
class PreviewRequests:
    """Pictures of a step. requests: one for each prompt and guidance scale; with text embeddings where the family's
    text encoder is not loaded. settings: what requests leave open."""

    requests: Sequence[Request]
    settings: SampleSettings


@dataclass(frozen=True, slots=True)
class Setup:
    """What callbacks are made of. recipe: as plain values. line: the live line. start_step: where the run goes on.
    measures: whether pictures are held out; held_out: they, by the name of their set. previews, decode: what is drawn,
    and how latents become pixels. every_callback: filled when all of them are made."""

    run: RunSettings
    recipe: Mapping[str, Any]
    runtime: Runtime
    folder: RunFolder
    model: TrainableModel
    line: Callback
    say: Callable[[str], None]
    warn: Callable[[str], None]
    start_step: int
    measures: bool
    held_out: Callable[[], Mapping[str, Sequence[Batch]]]
    previews: Callable[[], PreviewSource]
    decode: Callable[[Tensor], Tensor]
    every_callback: list[Callback] = field(default_factory=list)

    @property
    def computes(self) -> bool:
        """Whether this process computes with the networks between steps: the first, and all that share the weights."""
        return self.runtime.is_first or bool(self.runtime.shares)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Hands numbers to all callbacks. Raises StorageError when one of them does, after the others."""
        self._hand_to_all(lambda one: one.numbers(step, values))

    def picture(self, step: int, name: str, pixels: NDArray[np.uint8]) -> None:
        """Hands a picture to all callbacks. Raises StorageError when one of them does, after the others."""
        self._hand_to_all(lambda one: one.picture(step, name, pixels))

    def _hand_to_all(self, hand: Callable[[Callback], None]) -> None:
        failed: StorageError | None = None
        for callback in self.every_callback if self.runtime.is_first else ():
            try:
                hand(callback)
            except StorageError as error:
                failed = error
        if failed is not None:
            raise failed


def open_callbacks(setup: Setup, more: Sequence[Callback] = ()) -> list[Callback]:
    """Every callback that the settings ask for, and `more`, in the same order on every process. Those of other packages
    are asked for by `run.callbacks`."""
    named = {name.replace("_", "-") for name in setup.run.callbacks}
    names = sorted({*registry.names("training/callbacks", skip_unimported=True), *named})
    modules = [registry.find("training/callbacks", name) for name in names]
    callbacks: list[Callback] = [callback for module in modules for callback in module.opened(setup)]
    callbacks += more
    callbacks.sort(key=lambda one: one.place)
    setup.every_callback.extend(callbacks)
    return callbacks
