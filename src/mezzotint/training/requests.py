"""The host of a run, which saves and reports for it, and requests to a running run.

Requests are files: `requests/draw`, `requests/save` and `requests/stop` in a run's folder, with any content, request
previews, a checkpoint, or a stop after a save. The first process checks for them after each step, removes each and acts
on it once. Anyone who may write into the folder can send a request, from any machine that sees it.

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
"""The trainer: `training.loop.Trainer`."""

FLAGS = {"draw": PeerSignals.PREVIEW, "save": PeerSignals.SAVE, "stop": PeerSignals.STOP}
"""Possible requests, by file name."""

_MAX_BYTES = 4096
"""Maximum size of a request file."""


class RunHost(Generic[Run]):
    """Saves, exports, passes on signals and reports to the user. The methods of this class do nothing, which is enough
    for a dry run and a benchmark; `train` has its own subclass."""

    def save(self, trainer: Run, *, at_once: bool = True) -> None:
        """Writes a checkpoint of the trainer's `tensors()` and `state()`, or starts writing it. at_once: it is complete
        on return."""

    def is_saving(self) -> bool:
        """Whether this process is still writing its part of a checkpoint."""
        return False

    def hold_save(self) -> None:
        """Called before a step changes weights: the data of a save in progress is kept unchanged."""

    def end_save(self) -> None:
        """Waits for the checkpoint in progress and completes it; raises its error."""

    def give_up_save(self) -> None:
        """Called when the run fails while a checkpoint is in progress. Raises nothing."""

    def export(self, trainer: Run) -> None:
        """Writes the trainer's current model."""

    def requests(self) -> PeerSignals:
        """Requests by signals and request files since the last call (`training.interrupts`)."""
        return NONE

    def epoch_begins(self, trainer: Run, epoch: int) -> None:
        """Called before an epoch's first step."""

    def bad_step(self, report: StepReport) -> None:
        """Called for a non-finite step."""

    def report_corrupt(self, samples: Sequence[str], so_far: int) -> None:
        """Called on every process for samples whose files are corrupt. so_far: how many there are in total."""

    def warn(self, text: str) -> None:
        """Called when something failed and training continues."""

    def loss_of_folder(self) -> str:
        """Why the run folder is lost, "" if it is not."""
        return ""


class Requests:
    """The folder of requests of one run; it may be missing. warn: called once for each request that fails."""

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._warn = warn
        self._rejected: set[tuple[str, int]] = set()

    def take(self) -> list[str]:
        """The requests since the last call. Raises nothing: no file in this folder can stop or delay training."""
        try:
            if not stat.S_ISDIR(os.lstat(self._folder).st_mode):
                return []
        except OSError:
            return []
        return [name for name in FLAGS if self._take_request(name)]

    def _take_request(self, name: str) -> bool:
        path = self._folder / name
        try:
            status = os.lstat(path)
        except OSError:
            return False
        mark = (name, status.st_mtime_ns)
        if mark in self._rejected:
            return False
        try:
            if stat.S_ISLNK(status.st_mode):
                raise outside.NotRegularFile(path, "it is a link")
            outside.read_bytes(path, limit=_MAX_BYTES)
            path.unlink()
        except OSError as error:
            self._rejected.add(mark)
            self._warn(f"{path}: the request is ignored ({error.strerror or error})")
            return False
        return True


def sweep(folder: Path) -> None:
    """Removes requests to an earlier attempt, which would otherwise stop a new one."""
    for name in FLAGS:
        try:
            (folder / name).unlink(missing_ok=True)
        except OSError:
            continue  # a request that stays is acted on, or warned of
