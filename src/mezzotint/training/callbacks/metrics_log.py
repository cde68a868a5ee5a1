"""The run's numbers as JSON lines: metrics.jsonl, the source of every report, and the samples of each step.

    metrics.jsonl               {"step": 1, "epoch": 0, "loss": 0.131…, "loss_avg": 0.131…, "norm": …, …}
                                {"step": 100, "val/loss": …, "val/loss_shadow": …, …}
    logs/samples.rank0.jsonl    {"step": 1, "keys": […], "timesteps": […], "losses": […]}

`step` counts the steps done, so the first is 1; `epoch` counts from 0. Numbers are written with all their digits and
read back to the last bit; what is not finite is the text "nan", "inf" or "-inf", which `float()` reads, because JSON
has no such number.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from mezzotint import durable
from mezzotint.errors import StorageError
from mezzotint.run_folder import RunFolder
from mezzotint.stages import StepReport
from mezzotint.training.callbacks._running_mean import RunningMean
from mezzotint.training.callbacks._scalars import is_written
from mezzotint.training.callbacks.base import Action, Callback, Setup
from mezzotint.training.progress import Progress
from mezzotint.training.trainer import sample_keys_digest


class Lines:
    """A file of JSON lines that grows by one whole line at a time, handed to the system at once.

    A disk that refuses is an error once (StorageError E1705); later lines are tried in silence.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._told = False

    def write(self, value: Mapping[str, Any]) -> None:
        """Adds a line. Raises StorageError E1705 at the first failure."""
        line = (json.dumps(_plain(value), ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8", "replace")
        try:
            file = self._file = self._file or self._open()
            if file.write(line) != len(line):
                raise OSError("the line could only be written in part")
        except OSError as error:
            self.close()
            if not self._told:
                self._told = True
                reason = error.strerror or str(error)
                raise StorageError(
                    f"{self._path}: cannot be written ({reason}); make room there", code="E1705"
                ) from error

    def sync(self) -> None:
        """Makes what is written durable, as far as the disk allows."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Lets the file go; the next line opens it again."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None

    def _open(self) -> IO[bytes]:
        file = durable.open_own(self._path, "ab+", buffering=0)
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")  # a torn line of a killed process stays alone
        return file


@dataclass(frozen=True, slots=True)
class Since:
    """What was done since a line was written. samples: on all processes. seconds: of training."""

    steps: int = 0
    samples: int = 0
    seconds: float = 0.0

    def after(self, report: StepReport) -> Since:
        """The same and one more step."""
        return Since(self.steps + 1, self.samples + report.samples, self.seconds + report.seconds)


class MetricsLog(Callback):
    """Writes a line of metrics.jsonl for every `every`-th step, the first and the last.

    What a line says is of that step alone, save for steps_since, samples_since and seconds_since: those add up all
    steps since the line before, this one included, so that the sums of a file are the run's. samples: of the step, on
    all processes. loss_avg: the smoothed loss of all steps so far, logged or not, as the live line shows it; a run that
    began before lines told it goes on without. samples_digest: which samples the first process had. images_per_s,
    data_wait (share of the time, 0 to 1) and seconds_since depend on the machine; everything else of a resumed run
    equals the undisturbed run's.
    """

    follows = True

    def __init__(self, folder: RunFolder, every: int) -> None:
        self._lines = Lines(folder.metrics)
        self._every_steps = every
        self._since = Since()
        self._smoothed: RunningMean | None = RunningMean()

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Writes the line of a step. Raises StorageError E1705, once."""
        if report is None:
            return Action.NOTHING
        self._since = self._since.after(report)
        if self._smoothed is not None:
            self._smoothed.take(report.loss)
        if is_written(report.step, self._every_steps, progress):
            mean = None if self._smoothed is None else self._smoothed.value
            line = _line(report, mean) | {f"{name}_since": value for name, value in asdict(self._since).items()}
            self._since = Since()
            self._lines.write(line)
        return Action.NOTHING

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Writes what another callback has measured after `step` steps. Raises StorageError E1705, once."""
        self._lines.write({"step": step, **values})

    def state(self) -> dict[str, Any]:
        """What came since the last line, and the smoothed loss; a checkpoint never knows more lines than the disk
        has."""
        self._lines.sync()
        state = {} if self._smoothed is None else {"smoothed": self._smoothed.state()}
        return asdict(self._since) | state

    def load(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` gave; an older run's knows no smoothed loss, or nothing."""
        self._since = Since(**{name: value for name, value in state.items() if name != "smoothed"})
        self._smoothed = RunningMean() if "smoothed" in state else None
        if self._smoothed is not None:
            self._smoothed.load(state["smoothed"])

    def close(self) -> None:
        self._lines.close()


class SampleLog(Callback):
    """Writes which samples, timesteps and losses (before weighting) made each step on this process."""

    follows = True
    on_all_ranks = True

    def __init__(self, folder: RunFolder, rank: int) -> None:
        self._lines = Lines(folder.logs / f"samples.rank{rank}.jsonl")

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Writes the line of a step. Raises StorageError E1705, once."""
        if report is not None:
            self._lines.write(
                {
                    "step": report.step + 1,
                    "keys": report.keys,
                    "timesteps": report.timesteps,
                    "losses": report.losses,
                }
            )
        return Action.NOTHING

    def state(self) -> dict[str, Any]:
        """Nothing to remember; the lines are on the disk before the checkpoint is."""
        self._lines.sync()
        return {}

    def close(self) -> None:
        self._lines.close()


def truncate(folder: RunFolder, step: int) -> int:
    """Takes back every line that a checkpoint of `step` does not know, so that a killed and resumed run has each step
    once; 0 empties the logs, because the run then says its step 0 again. Returns how many lines went.

    Concerns metrics.jsonl, bad_steps.jsonl and the sample logs of all processes. Each file is replaced as a whole;
    torn lines go, too. Call it in the first process, before any callback writes. Raises StorageError.
    """
    logs = [folder.metrics, folder.bad_steps, *sorted(folder.logs.glob("samples.rank*.jsonl"))]
    return sum(_truncate(path, step) for path in logs if path.is_file())


def _truncate(path: Path, step: int) -> int:
    with open(path, "rb") as old:
        gone = sum(not _is_known(line, step) for line in old)
    if gone:
        replacing = durable.replacing(path, needed=path.stat().st_size)
        with replacing as aside, open(path, "rb") as old, open(aside, "wb") as new:
            new.writelines(line for line in old if _is_known(line, step))
    return gone


def _is_known(line: bytes, step: int) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        value = json.loads(line)
    except ValueError:
        return False
    found = value.get("step", 0) if isinstance(value, dict) else None
    return isinstance(found, int) and step > 0 and found <= step


def _line(report: StepReport, mean: float | None) -> dict[str, Any]:
    seconds = max(report.seconds, 1e-9)
    return {
        "step": report.step + 1,
        "epoch": report.epoch,
        "loss": report.loss,
        **({} if mean is None else {"loss_avg": mean}),
        "norm": report.norm,
        **{f"lr/{group}": rate for group, rate in report.rates.items()},
        "samples": report.samples,
        "samples_digest": sample_keys_digest(report.keys),
        "applied": report.applied,
        "overflow": report.overflow,
        "loss_scale": report.loss_scale,
        "images_per_s": report.samples / seconds,
        "data_wait": min(1.0, report.wait_seconds / seconds),
        "memory_bytes": report.memory_bytes,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def opened(setup: Setup) -> Iterator[Callback]:
    """The lines of every run, and those of samples with `run.log_samples`."""
    yield MetricsLog(setup.folder, setup.run.log_every)
    if setup.run.log_samples:
        yield SampleLog(setup.folder, setup.runtime.rank)
