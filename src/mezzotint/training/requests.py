"""What a run's owner does for it, and what others ask of it while it goes.

Requests by files: `requests/draw`, `requests/save` and `requests/stop` in a run's folder, whatever is in them, ask
for previews, a checkpoint, or the end after a save. The first process looks at a step's end, takes each away and acts
on it once; whoever may write into the folder may ask, from any machine that sees it.

    touch runs/mine/requests/draw
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from mezzotint import outside
from mezzotint.stages import StepReport
from mezzotint.training.peers import NONE, PeerSignals

Run = TypeVar("Run", contravariant=True)
"""What trains: `training.loop.Trainer`."""

FLAGS = {"draw": PeerSignals.PREVIEW, "save": PeerSignals.SAVE, "stop": PeerSignals.STOP}
"""What can be asked for, by the file's name."""

_MOST = 4096
"""Bytes of a request."""


class RunHost(Generic[Run]):
    """Saves, exports, passes signals on and tells the user. Here each of them does nothing, which is all that a dry run
    and a benchmark need; `train` has its own."""

    def save(self, trainer: Run, *, at_once: bool = True) -> None:
        """Writes a checkpoint of the trainer's `tensors()` and `state()`, or begins to: with at_once it is complete on
        return."""

    def is_saving(self) -> bool:
        """Whether this process still writes its part of a checkpoint that was begun."""
        return False

    def hold_save(self) -> None:
        """Called before a step moves weights: what is being saved stays what it was."""

    def end_save(self) -> None:
        """Waits for the checkpoint that was begun and completes it; raises what it met."""

    def give_up_save(self) -> None:
        """Called when the run fails while a checkpoint is under way. Raises nothing."""

    def export(self, trainer: Run) -> None:
        """Writes the model as the trainer has it now."""

    def requests(self) -> PeerSignals:
        """What signals and request files have asked for since the last call (`training.interrupts`)."""
        return NONE

    def epoch_begins(self, trainer: Run, epoch: int) -> None:
        """Called before an epoch's first step."""

    def bad_step(self, report: StepReport) -> None:
        """Called for a step that was not finite."""

    def broken(self, samples: Sequence[str], so_far: int) -> None:
        """Called on every process for samples whose files have proved damaged. so_far: how many there are."""

    def warn(self, text: str) -> None:
        """Something failed and the training goes on."""

    def loss_of_folder(self) -> str:
        """Why nothing can be written any more, "" while it can."""
        return ""


class Requests:
    """The folder of requests of one run. It need not be there. warn: hears what cannot be followed, each once."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._warn = warn
        self._unmoved: set[tuple[str, int]] = set()

    def take(self) -> list[str]:
        """What has been asked for since the last call. Raises nothing: training waits for nobody and dies of nothing
        that lies here."""
        try:
            if not stat.S_ISDIR(os.lstat(self._folder).st_mode):
                return []
        except OSError:
            return []
        return [name for name in FLAGS if self._has_come(name)]

    def _has_come(self, name: str) -> bool:
        path = self._folder / name
        try:
            status = os.lstat(path)
        except OSError:
            return False
        mark = (name, status.st_mtime_ns)
        if mark in self._unmoved:
            return False
        try:
            if stat.S_ISLNK(status.st_mode):
                raise outside.NoPlainFile(path, "it is a link")
            outside.read_bytes(path, limit=_MOST)
            path.unlink()
        except OSError as error:
            self._unmoved.add(mark)
            self._warn(f"{path}: the request is not followed ({error.strerror or error})")
            return False
        return True


def sweep(folder: Path) -> None:
    """Takes away what was asked of an earlier attempt: a run that begins is not stopped by it."""
    for name in FLAGS:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError:
            continue  # a request that stays is followed, or warned of
