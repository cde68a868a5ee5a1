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
from collections.abc import Mapping
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
from mezzotint.training.metrics_log import is_written
from mezzotint.training.observers import Observer, Wish
from mezzotint.training.progress import Progress
from mezzotint.training.smoothed import Smoothed

TAGS: Mapping[str, str] = {
    "loss/step": "Loss of the step: weighted mean over its samples, on all processes.",
    "loss/avg": "Exponential mean of loss/step, about the last fifty steps; goes on over a resume.",
    "loss/by_timestep/0..9": "Mean unweighted loss of the first process's samples since the last point whose timestep "
    "lies in this tenth of the schedule (0: least noise). Tenths without a sample have no point.",
    "val/loss": "Held-out loss, trained weights: mean squared error at fixed timesteps and noise, unweighted.",
    "val/loss_shadow": "The same with the averaged weights; only with optim.ema.",
    "val/loss_at/T": "Held-out loss at timestep T, trained weights.",
    "val/loss_shadow_at/T": "Held-out loss at timestep T, averaged weights.",
    "val/NAME": "The same for each set of data.holdout.path, by its name, with val/NAME_shadow, val/NAME_at/T and "
    "val/NAME_shadow_at/T.",
    "val/train": "The same for a share of the trained pictures (run.validation.training_share), with val/train_shadow, "
    "val/train_at/T and val/train_shadow_at/T.",
    "val/all": "Mean over the sets that are not trained, each counting the same; only of several. With averaged "
    "weights also val/all_shadow.",
    "lr/GROUP": "Learning rate of a parameter group (denoiser, text_encoder.no_decay, …).",
    "grad/norm": "Norm of the gradient before clipping, all trained parts together.",
    "perf/images_per_s": "Samples per second of the step, on all processes.",
    "perf/data_wait": "Share of the step's time spent waiting for data, 0 to 1.",
    "memory/peak_gib": "Most device memory held so far, in GiB; not on the CPU.",
    "scaler/scale": "The loss scale; only in fp16.",
    "preview/PROMPT/raw": "Preview of a prompt (its number, from 0, several guidance scales counted one by one), "
    "trained weights.",
    "preview/PROMPT/shadow": "The same with the averaged weights.",
}
"""Every tag with its meaning. Steps are steps done: the first is 1; 0 is before training. Part of the documentation."""

_BINS = 10


class TensorBoardLog(Observer):
    """Writes scalars for every `every`-th step, the first and the last; and the numbers and pictures of others.

    num_timesteps: of the schedule. start_step: steps that a resumed run has done; what earlier attempts wrote beyond
    it is hidden by TensorBoard.
    """

    follows = True

    def __init__(self, folder: RunFolder, every: int, *, num_timesteps: int = 1000, start_step: int = 0) -> None:
        self._events = EventFile(folder.logs, purge_step=start_step + 1 if start_step else 0)
        self._every_steps = every
        self._num_timesteps = num_timesteps
        self._smoothed = Smoothed()
        self._bin_sums = [0.0] * _BINS
        self._bin_counts = [0] * _BINS

    def look(self, report: StepReport | None, progress: Progress) -> Wish:
        """Takes every report into the means, writes those that are due. Raises StorageError E1705, once."""
        if report is not None:
            self._smoothed.take(report.loss)
            self._sort_by_timestep(report)
            if is_written(report.step, self._every_steps, progress):
                self._events.write(report.step + 1, [_scalar(tag, x) for tag, x in self._scalars(report).items()])
        return Wish.NOTHING

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Writes what another observer has measured after `step` steps. Raises StorageError E1705, once."""
        self._events.write(step, [_scalar(tag, value) for tag, value in values.items()])

    def picture(self, step: int, name: str, pixels: NDArray[np.uint8]) -> None:
        """Writes a picture, uint8 (H, W, 3), under `preview/NAME`. Raises StorageError E1705, once."""
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        height, width, _ = pixels.shape
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=file.getvalue())
        self._events.write(step, [Summary.Value(tag=f"preview/{name}", image=image)])

    def state(self) -> dict[str, Any]:
        return {
            "smoothed": self._smoothed.state(),
            "by_timestep": {"sums": list(self._bin_sums), "counts": list(self._bin_counts)},
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self._smoothed.load(state.get("smoothed", {}))
        bins = state.get("by_timestep", {})
        self._bin_sums = list(bins.get("sums", [0.0] * _BINS))
        self._bin_counts = list(bins.get("counts", [0] * _BINS))

    def close(self) -> None:
        self._events.close()

    def _sort_by_timestep(self, report: StepReport) -> None:
        for timestep, loss in zip(report.timesteps, report.losses, strict=True):
            place = min(_BINS - 1, max(0, int(timestep * _BINS / self._num_timesteps)))
            self._bin_sums[place] += loss
            self._bin_counts[place] += 1

    def _scalars(self, report: StepReport) -> dict[str, float]:
        seconds = max(report.seconds, 1e-9)
        found = {"loss/step": report.loss, "grad/norm": report.norm}
        if self._smoothed.value is not None:
            found["loss/avg"] = self._smoothed.value
        for place, count in enumerate(self._bin_counts):
            if count:
                found[f"loss/by_timestep/{place}"] = self._bin_sums[place] / count
        self._bin_sums, self._bin_counts = [0.0] * _BINS, [0] * _BINS
        found |= {f"lr/{group}": rate for group, rate in report.rates.items()}
        found["perf/images_per_s"] = report.samples / seconds
        found["perf/data_wait"] = min(1.0, report.wait_seconds / seconds)
        if report.memory_bytes:
            found["memory/peak_gib"] = report.memory_bytes / 2**30
        if report.loss_scale != 1.0:
            found["scaler/scale"] = report.loss_scale
        return found


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
    found = (re.match(r"events\.out\.tfevents\.(\d{10})\.", path.name) for path in folder.iterdir())
    latest = max((int(match[1]) for match in found if match), default=0)
    return f"events.out.tfevents.{max(int(time.time()), latest + 1):010d}.{socket.gethostname()}.{os.getpid()}"


def _scalar(tag: str, value: float) -> Summary.Value:
    return Summary.Value(tag=tag, simple_value=value)
