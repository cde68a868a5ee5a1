"""The run's curves and previews for TensorBoard: one events file for each attempt in `logs/`.

The files are written directly, with TensorBoard's records and messages, not through its writer, which imports
TensorFlow if it is installed, and writes in a thread whose disk errors are lost.
"""

from __future__ import annotations

import io
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from mezzotint.run_folder import RunFolder
from mezzotint.training.callbacks._growing_file import GrowingFile
from mezzotint.training.callbacks._scalars import ScalarLog
from mezzotint.training.callbacks.base import Callback, Setup


class TensorBoardLog(ScalarLog):
    """Writes scalars of every `every`-th step, the first and the last; and the numbers and images of other callbacks.

    num_timesteps: of the schedule. start_step: completed steps of a resumed run; TensorBoard hides what earlier
    attempts wrote after it.
    """

    def __init__(self, folder: RunFolder, every: int, *, num_timesteps: int = 1000, start_step: int = 0) -> None:
        super().__init__(every, num_timesteps)
        self._events = EventFile(folder.logs, purge_step=start_step + 1 if start_step else 0)

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Writes scalars of a step or of another callback. Raises StorageError E1705, once."""
        self._events.add(step, [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])

    def image(self, step: int, name: str, pixels: NDArray[np.uint8]) -> None:
        """Writes an image, uint8 (H, W, 3), under `preview/NAME`. Raises StorageError E1705, once."""
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        height, width, _ = pixels.shape
        summary = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=file.getvalue())
        self._events.add(step, [Summary.Value(tag=f"preview/{name}", image=summary)])

    def close(self) -> None:
        self._events.close()


class EventFile(GrowingFile):
    """An events file in a folder. purge_step: readers hide events of earlier files from this step on."""

    noun = "TensorBoard events"

    def __init__(self, folder: Path, *, purge_step: int) -> None:
        super().__init__(folder)
        self._purge_step: int | None = purge_step

    def add(self, step: int, values: list[Summary.Value]) -> None:
        """Appends one event. Raises StorageError E1705 at the first failure; later ones are silent."""
        self.write(_record(Event(step=step, wall_time=time.time(), summary=Summary(value=values))))

    def open(self) -> IO[bytes]:
        """Opens a new file, also after a write to an earlier one has failed."""
        return open(self.path / _file_name(self.path), "xb", buffering=0)

    def head(self) -> list[bytes]:
        """The version, and in the first file the purge step."""
        events = [Event(wall_time=time.time(), file_version="brain.Event:2")]
        if self._purge_step is not None:
            start = SessionLog(status=SessionLog.START)
            events.append(Event(step=self._purge_step, wall_time=time.time(), session_log=start))
            self._purge_step = None
        return [_record(event) for event in events]


def _record(event: Event) -> bytes:
    record = io.BytesIO()
    RecordWriter(record).write(event.SerializeToString())
    return record.getvalue()


def _file_name(folder: Path) -> str:
    """A name that sorts after those of all earlier attempts: readers use that order."""
    name = (re.match(r"events\.out\.tfevents\.(\d{10})\.", path.name) for path in folder.iterdir())
    latest = max((int(match[1]) for match in name if match), default=0)
    return f"events.out.tfevents.{max(int(time.time()), latest + 1):010d}.{socket.gethostname()}.{os.getpid()}"


def create_callbacks(setup: Setup) -> Iterator[Callback]:
    """Enabled by `run.tensorboard`."""
    if setup.run.tensorboard:
        timesteps = setup.model.objective.schedule.num_timesteps
        yield TensorBoardLog(setup.folder, setup.run.log_every, num_timesteps=timesteps, start_step=setup.start_step)
