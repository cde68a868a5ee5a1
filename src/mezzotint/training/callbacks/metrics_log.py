"""The run's numbers as JSON lines: metrics.jsonl, the source of every report, and the samples of each step.

    metrics.jsonl               {"step": 1, "epoch": 0, "loss": 0.131…, "loss_avg": 0.131…, "norm": …, …}
                                {"step": 100, "val/loss": …, "val/loss_shadow": …, …}
    logs/samples.rank0.jsonl    {"step": 1, "keys": […], "timesteps": […], "losses": […]}

`step` counts completed steps: the first is 1; `epoch` counts from 0. Numbers are written with all digits and read back
bit-exact; non-finite ones are the strings "nan", "inf" or "-inf", which `float()` reads, because JSON has no such
number.
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from mezzotint import draws, durable, outside
from mezzotint.run_folder import RunFolder
from mezzotint.stages import StepReport
from mezzotint.training.callbacks._growing_file import GrowingFile
from mezzotint.training.callbacks._scalars import BINS, QUARTILES, BinMeans, RunningMean, is_written
from mezzotint.training.callbacks.base import Action, Callback, Setup
from mezzotint.training.progress import Progress

_ZEROS = {"steps": 0, "samples": 0, "seconds": 0.0}


class Lines(GrowingFile):
    """A file of JSON lines."""

    def add(self, value: Mapping[str, Any]) -> None:
        """Appends a line. Raises StorageError E1705 at the first failure."""
        self.write((json.dumps(_to_json(value), ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8", "replace"))

    def open(self) -> IO[bytes]:
        """Opens the file at its end; a truncated line of a killed process is closed with a newline."""
        file = durable.open_own(self.path, "ab+", buffering=0)
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        return file


class MetricsLog(Callback):
    """Writes a line of metrics.jsonl for every `every`-th step, the first and the last.

    The values of a line belong to its step only, except steps_since, samples_since and seconds_since: these sum over
    all steps since the previous line, including its own, so their totals over the file are those of the run. samples:
    of the step, on all processes. loss_avg: the smoothed loss of all steps so far, logged or not, as in the live line.
    loss/by_timestep/N: mean unweighted loss of the first process's samples since the previous line whose timestep is in
    this tenth of the schedule; loss_at/quartile_Q: in this quarter. loss/instance, loss/class: of runs with class
    images, see `StepReport.group_losses`. samples_digest: identifies the samples of the first process. images_per_s,
    data_wait (share of the time, 0 to 1) and seconds_since depend on the machine; everything else is the same in a
    resumed run and in an uninterrupted one.
    """

    receives_delayed_reports = True

    def __init__(self, folder: RunFolder, every: int, num_timesteps: int = 1000) -> None:
        self._lines = Lines(folder.metrics)
        self._tenths, self._quartiles = BinMeans(BINS, num_timesteps), BinMeans(QUARTILES, num_timesteps)
        self._every_steps = every
        self._since = dict(_ZEROS)
        self._running_mean = RunningMean()

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Writes the line of a step. Raises StorageError E1705, once."""
        if report is None:
            return Action.NOTHING
        step = {"steps": 1, "samples": report.samples, "seconds": report.seconds}
        self._since = {name: so_far + step[name] for name, so_far in self._since.items()}
        self._running_mean.take(report.loss)
        for means in (self._tenths, self._quartiles):
            means.take(report.timesteps, report.losses)
        if is_written(report.step, self._every_steps, progress):
            line = _line(report, self._running_mean.value)
            line |= {f"{name}_since": value for name, value in self._since.items()}
            line |= {f"loss/by_timestep/{index}": loss for index, loss in self._tenths.drain().items()}
            line |= {f"loss_at/quartile_{index}": loss for index, loss in self._quartiles.drain().items()}
            self._since = dict(_ZEROS)
            self._lines.add(line)
        return Action.NOTHING

    @property
    def smoothed_loss(self) -> float | None:
        """`loss_avg` of the last step; None before the first."""
        return self._running_mean.value

    def numbers(self, step: int, values: Mapping[str, float]) -> None:
        """Writes numbers that another callback measured after `step` steps. Raises StorageError E1705, once."""
        self._lines.add({"step": step, **values})

    def state(self) -> dict[str, Any]:
        """Sums since the last line, and the smoothed loss. Syncs the file first: a checkpoint never counts lines that
        are not on disk."""
        self._lines.sync()
        means = {"by_timestep": self._tenths.state(), "quartiles": self._quartiles.state()}
        return self._since | {"smoothed": self._running_mean.state()} | means

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state`; an empty one resets."""
        self._since = {name: state.get(name, zero) for name, zero in _ZEROS.items()}
        self._tenths.load(state.get("by_timestep", {}))
        self._quartiles.load(state.get("quartiles", {}))
        self._running_mean.load(state.get("smoothed", {}))

    def close(self) -> None:
        self._lines.close()


class SampleLog(Callback):
    """Writes the samples, timesteps and unweighted losses of each step on this process."""

    receives_delayed_reports = True
    on_all_ranks = True

    def __init__(self, folder: RunFolder, rank: int) -> None:
        self._lines = Lines(folder.logs / f"samples.rank{rank}.jsonl")

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Writes the line of a step. Raises StorageError E1705, once."""
        if report is not None:
            facts = {name: getattr(report, name) for name in ("keys", "timesteps", "losses")}
            self._lines.add({"step": report.step + 1, **facts})
        return Action.NOTHING

    def state(self) -> dict[str, Any]:
        """No state; syncs the lines to disk before the checkpoint is written."""
        self._lines.sync()
        return {}

    def close(self) -> None:
        self._lines.close()


class SpikeLog(Callback):
    """Writes the samples, timesteps and losses of this process for a step whose loss or gradient norm is far above
    those of the steps before. factor: threshold as a multiple of their median."""

    receives_delayed_reports = True
    on_all_ranks = True
    LAST, LEAST = 64, 16

    def __init__(self, folder: RunFolder, rank: int, factor: float) -> None:
        self._lines = Lines(folder.logs / f"spikes.rank{rank}.jsonl")
        self._factor = factor
        self._before: dict[str, list[float]] = {"loss": [], "norm": []}

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Writes the line of a spike. Raises StorageError E1705, once."""
        if report is None or not (math.isfinite(report.loss) and math.isfinite(report.norm)):
            return Action.NOTHING  # it is in bad_steps.jsonl
        numbers = {"loss": report.loss, "norm": report.norm}
        usual_values = {name: statistics.median(b) for name, b in self._before.items() if len(b) >= self.LEAST}
        self._before = {name: [*b, numbers[name]][-self.LAST :] for name, b in self._before.items()}
        if any(numbers[name] > self._factor * median for name, median in usual_values.items()):
            facts = {name: getattr(report, name) for name in ("keys", "timesteps", "losses")}
            medians = {f"usual_{name}": median for name, median in usual_values.items()}
            self._lines.add({"step": report.step + 1, **numbers, **medians, **facts})
        return Action.NOTHING

    def state(self) -> dict[str, Any]:
        """The numbers of the last steps. Syncs the lines to disk before the checkpoint is written."""
        self._lines.sync()
        return {name: list(before) for name, before in self._before.items()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state`; an empty one resets."""
        self._before = {name: list(state.get(name, ())) for name in self._before}

    def close(self) -> None:
        self._lines.close()


def truncate(folder: RunFolder, step: int) -> int:
    """Removes every line after `step`, the step of the checkpoint to resume from; each step then appears once in a
    resumed run. 0 empties the logs, because the run writes its step 0 again. Returns the number of lines removed.

    Applies to metrics.jsonl, bad_steps.jsonl and the sample and spike logs of all processes. Each file is replaced as a
    whole; truncated lines are removed, too. Call it in the first process, before any callback writes. Raises
    StorageError.
    """
    logs = [folder.metrics, folder.bad_steps]
    logs += [path for name in ("samples", "spikes") for path in sorted(folder.logs.glob(f"{name}.rank*.jsonl"))]
    return sum(_truncate(path, step) for path in logs if path.is_file())


def _truncate(path: Path, step: int) -> int:
    with open(path, "rb") as old:
        num_removed = sum(not _is_kept(line, step) for line in old)
    if num_removed:
        replacing = durable.replacing(path, needed=path.stat().st_size)
        with replacing as temporary, open(path, "rb") as old, open(temporary, "wb") as new:
            new.writelines(line for line in old if _is_kept(line, step))
    return num_removed


def _is_kept(line: bytes, step: int) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        value = outside.parse_json(line.decode("utf-8", "replace"))
    except ValueError:
        return False
    line_step = value.get("step", 0) if isinstance(value, dict) else None
    return isinstance(line_step, int) and step > 0 and line_step <= step


def _line(report: StepReport, mean: float | None) -> dict[str, Any]:
    return {
        "step": report.step + 1,
        "epoch": report.epoch,
        "loss": report.loss,
        **({} if mean is None else {"loss_avg": mean}),
        **{f"loss/{group}": loss for group, loss in report.group_losses.items()},
        "norm": report.norm,
        **{f"lr/{group}": rate for group, rate in report.rates.items()},
        "samples": report.samples,
        "samples_digest": keys_digest(report.keys),
        "applied": report.applied,
        "overflow": report.overflow,
        "loss_scale": report.loss_scale,
        "images_per_s": report.images_per_s,
        "data_wait": report.data_wait,
        "memory_bytes": report.memory_bytes,
    }


def keys_digest(keys: Sequence[str]) -> str:
    """Sixteen hexadecimal digits: a hash of the keys of a step's samples, in their order."""
    return f"{draws.text_key(chr(0).join(keys)):016x}"


def _to_json(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {name: _to_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    return value


def create_callbacks(setup: Setup) -> Iterator[Callback]:
    """The metrics log; with `run.log_samples` the sample log, with `run.spike_factor` the spike log."""
    yield MetricsLog(setup.folder, setup.run.log_every, setup.model.objective.schedule.num_timesteps)
    if setup.run.log_samples:
        yield SampleLog(setup.folder, setup.runtime.rank)
    if setup.run.spike_factor is not None:
        yield SpikeLog(setup.folder, setup.runtime.rank, setup.run.spike_factor)
