"""The run's curves and previews for TensorBoard: one events file an attempt in `logs/`.

The files are written here, with TensorBoard's own records and messages, and not through its writer: that one brings
TensorFlow in where it is installed, and a thread whose disk errors nobody sees.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from mezzotint.errors import StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.stages import StepReport
from mezzotint.training.callbacks._scalars import Scalars, is_written
from mezzotint.training.callbacks.base import Action, Callback, Setup, StandsIn
from mezzotint.training.progress import Progress


class TensorBoardLog(Callback):
    """Writes scalars for every `every`-th step, the first and the last; and the numbers and pictures of others.

    num_timesteps: of the schedule. start_step: steps that a resumed run has done; what earlier attempts wrote beyond
    it is hidden by TensorBoard.
    """

    follows = True

    def __init__(self, folder: RunFolder, every: int, *, num_timesteps: int = 1000, start_step: int = 0) -> None:
        self._events = EventFile(folder.logs, purge_step=start_step + 1 if start_step else 0)
        self._every_steps = every
        self._scalars = Scalars(num_timesteps)

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Takes every report into the means, writes those that are due. Raises StorageError E1705, once."""
        if report is not None:
            self._scalars.take(report)
            if is_written(report.step, self._every_steps, progress):
                self._events.write(report.step + 1, [_scalar(tag, x) for tag, x in self._scalars.of(report).items()])
        return Action.NOTHING

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Writes what another callback has measured after `step` steps. Raises StorageError E1705, once."""
        self._events.write(step, [_scalar(tag, value) for tag, value in values.items()])

    def picture(self, step: int, name: str, pixels: NDArray[np.uint8]) -> None:
        """Writes a picture, uint8 (H, W, 3), under `preview/NAME`. Raises StorageError E1705, once."""
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        height, width, _ = pixels.shape
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=file.getvalue())
        self._events.write(step, [Summary.Value(tag=f"preview/{name}", image=image)])

    def state(self) -> dict[str, Any]:
        return self._scalars.state()

    def load(self, state: Mapping[str, Any]) -> None:
        self._scalars.load(state)

    def close(self) -> None:
        self._events.close()


class EventFile:
    """An events file in a folder, opened at the first event; a new one takes over when the disk has refused.

    purge_step: readers hide events of earlier files from this step on.
    """

    def __init__(self, folder: Path, *, purge_step: int) -> None:
        self._folder = folder
        self._purge_step: int | None = purge_step
        self._file: IO[bytes] | None = None
        self._told = False

    def write(self, step: int, values: list[Summary.Value]) -> None:
        """Adds one event. Raises StorageError E1705 at the first failure; later ones are silent."""
        try:
            if self._file is None:
                self._open()
            self._add(Event(step=step, wall_time=time.time(), summary=Summary(value=values)))
        except OSError as error:
            self.close()
            if not self._told:
                self._told = True
                reason = error.strerror or str(error)
                raise StorageError(
                    f"{self._folder}: TensorBoard events cannot be written ({reason}); make room there", code="E1705"
                ) from error

    def close(self) -> None:
        """Ends the file."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _open(self) -> None:
        self._file = open(self._folder / _file_name(self._folder), "xb", buffering=0)  # noqa: SIM115  open for the run
        self._add(Event(wall_time=time.time(), file_version="brain.Event:2"))
        if self._purge_step is not None:
            log = SessionLog(status=SessionLog.START)
            self._add(Event(step=self._purge_step, wall_time=time.time(), session_log=log))
            self._purge_step = None

    def _add(self, event: Event) -> None:
        assert self._file is not None
        record = io.BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        data = record.getvalue()
        if self._file.write(data) != len(data):
            raise OSError("the event could only be written in part")


def _file_name(folder: Path) -> str:
    """A name that sorts behind those of all earlier attempts: readers take the files in that order."""
    name = (re.match(r"events\.out\.tfevents\.(\d{10})\.", path.name) for path in folder.iterdir())
    latest = max((int(match[1]) for match in name if match), default=0)
    return f"events.out.tfevents.{max(int(time.time()), latest + 1):010d}.{socket.gethostname()}.{os.getpid()}"


def _scalar(tag: str, value: float) -> Summary.Value:
    return Summary.Value(tag=tag, simple_value=value)


def opened(setup: Setup) -> Iterator[Callback]:
    """With `run.tensorboard`, in the first process."""
    if setup.run.tensorboard and setup.runtime.is_first:
        timesteps = setup.model.objective.schedule.num_timesteps
        yield TensorBoardLog(setup.folder, setup.run.log_every, num_timesteps=timesteps, start_step=setup.start_step)
    elif setup.run.tensorboard:
        yield StandsIn(follows=True)
