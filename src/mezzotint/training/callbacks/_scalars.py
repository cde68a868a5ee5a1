"""Scalars for curves, by tag: the numbers of a step's report, and running means that continue after a resume."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from mezzotint.stages import StepReport
from mezzotint.training.callbacks.base import Action, Callback
from mezzotint.training.progress import Progress

TAGS: Mapping[str, str] = {
    "loss/step": "Loss of the step: weighted mean over its samples, on all processes.",
    "loss/avg": "Exponential mean of loss/step, about the last fifty steps; continues after a resume.",
    "loss/by_timestep/0..9": "Mean unweighted loss of the first process's samples since the last point whose timestep "
    "is in this tenth of the schedule (0: least noise). Tenths without a sample have no point.",
    "val/loss": "Held-out loss, trained weights: mean squared error at fixed timesteps and noise, unweighted.",
    "val/loss_shadow": "The same with the averaged weights; only with optim.ema.",
    "val/loss_at/T": "Held-out loss at timestep T, trained weights.",
    "val/loss_shadow_at/T": "Held-out loss at timestep T, averaged weights.",
    "val/loss_at/quartile_Q": "Mean of val/loss_at/T over the timesteps T in a quarter of the schedule (0: least "
    "noise); of every other number at T as well.",
    "val/NAME": "The same for each set of data.holdout.path, by its name, with val/NAME_shadow, val/NAME_at/T and "
    "val/NAME_shadow_at/T.",
    "val/train": "The same for a share of the training images (run.validation.training_fraction), with "
    "val/train_shadow, val/train_at/T and val/train_shadow_at/T.",
    "val/all": "Mean over the sets that are not trained, with equal weight; only with several sets. With averaged "
    "weights also val/all_shadow.",
    "drift/GROUP": "How far the trained model is from its base (run.drift): squared difference of their predictions "
    "relative to the base's, mean over timesteps; 0 is the base. GROUP: trigger, class, unrelated, held_out.",
    "drift/leak": "drift/class as a share of drift/trigger: 0 leaves the class alone, 1 changes it as much.",
    "drift/class_at/T": "drift/class at timestep T; of every other group as well.",
    "drift/class_shadow": "drift/class with the averaged weights; of every other group, and of the leak, as well.",
    "drift/class_shadow_at/T": "drift/class at timestep T, averaged weights.",
    "lr/GROUP": "Learning rate of a parameter group (denoiser, text_encoder.no_decay, denoiser/mid_block.*, …).",
    "grad/norm": "Norm of the gradient before clipping, over all trained parts.",
    "perf/images_per_s": "Samples per second of the step, on all processes.",
    "perf/data_wait": "Share of the step's time spent waiting for data, 0 to 1.",
    "memory/peak_gib": "Peak of allocated device memory so far, in GiB; not on the CPU.",
    "machine/processors": "Processors that the first process and its workers kept busy since the last point, on "
    "average; a point every ten seconds, as of all machine/… and device/….",
    "machine/busy": "Share of all processors of the machine that any process kept busy, 0 to 1.",
    "machine/memory_bytes": "Memory of the first process and its workers.",
    "machine/available_bytes": "Memory of the machine that is available to any process.",
    "device/utilization": "Share of the time in which the first process's GPU computed, in percent, as its driver "
    "reports it; needs the package nvidia-ml-py (extra gpu-curves), as device/temperature (degrees Celsius) and "
    "device/power (watts) do.",
    "device/memory": "Memory of this GPU that is in use by any process, in percent.",
    "scaler/scale": "The loss scale; only in fp16.",
    "preview/PROMPT/raw": "Preview of a prompt (its number, from 0; each guidance scale counts as a prompt), "
    "trained weights.",
    "preview/PROMPT/shadow": "The same with the averaged weights.",
}
"""Every tag with its meaning. Steps count completed steps: the first is 1; 0 is before training. Part of the docs."""

BINS = 10
QUARTILES = 4


class BinMeans:
    """Means by timestep bin: `count` equal parts of [0, num_timesteps); the first has the least noise."""

    def __init__(self, count: int, num_timesteps: int) -> None:
        self._count, self._num_timesteps = count, num_timesteps
        self._reset()

    def _reset(self) -> None:
        self._sums, self._counts = [0.0] * self._count, [0] * self._count

    def take(self, timesteps: Iterable[float], values: Iterable[float]) -> None:
        """Adds values, each at its timestep."""
        for timestep, value in zip(timesteps, values, strict=True):
            index = min(self._count - 1, max(0, int(timestep * self._count / self._num_timesteps)))
            self._sums[index] += value
            self._counts[index] += 1

    def drain(self) -> dict[int, float]:
        """Returns the mean of each bin that has a value, and resets all bins."""
        indexed = enumerate(zip(self._sums, self._counts, strict=True))
        means = {index: total / count for index, (total, count) in indexed if count}
        self._reset()
        return means

    def state(self) -> dict[str, Any]:
        """The state as JSON."""
        return {"sums": list(self._sums), "counts": list(self._counts)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state`; an empty one resets."""
        self._reset()
        self._sums, self._counts = list(state.get("sums", self._sums)), list(state.get("counts", self._counts))


class RunningMean:
    """The smoothed loss that is shown: m ← β m + (1 − β) x, divided by 1 − βⁿ after n values, as Adam's moments (Kingma
    and Ba 2015, arXiv:1412.6980).

    beta: 0.98 averages about the last fifty values. Non-finite values are skipped.
    """

    def __init__(self, beta: float = 0.98) -> None:
        self._beta = beta
        self._mean = 0.0
        self._count = 0

    def take(self, value: float) -> None:
        """Adds one value."""
        if math.isfinite(value):
            self._mean = self._beta * self._mean + (1 - self._beta) * value
            self._count += 1

    @property
    def value(self) -> float | None:
        """The mean; None before the first value."""
        return self._mean / (1 - self._beta**self._count) if self._count else None

    def state(self) -> dict[str, Any]:
        """The state as JSON."""
        return {"mean": self._mean, "count": self._count}

    def load(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state`; an empty one resets."""
        self._mean = float(state.get("mean", 0.0))
        self._count = int(state.get("count", 0))


class ScalarLog(Callback):
    """Passes the scalars of every `every`-th step, of the first and of the last to its method `numbers`. num_timesteps:
    of the schedule."""

    receives_delayed_reports = True

    def __init__(self, every: int, num_timesteps: int) -> None:
        self._every_steps = every
        self._running_mean = RunningMean()
        self._bins = BinMeans(BINS, num_timesteps)

    def on_step(self, report: StepReport | None, progress: Progress) -> Action:
        """Adds a report to the means, and writes the scalars if they are due. Raises StorageError E1705, once."""
        if report is not None:
            self.take(report)
            if is_written(report.step, self._every_steps, progress):
                self.numbers(report.step + 1, self.scalars(report))
        return Action.NOTHING

    def take(self, report: StepReport) -> None:
        """Adds a report to the means."""
        self._running_mean.take(report.loss)
        self._bins.take(report.timesteps, report.losses)

    def scalars(self, report: StepReport) -> dict[str, float]:
        """The numbers of the last report, by tag; resets the means by timestep."""
        values = {"loss/step": report.loss, "grad/norm": report.norm}
        values |= {f"loss/{group}": loss for group, loss in report.group_losses.items()}
        if self._running_mean.value is not None:
            values["loss/avg"] = self._running_mean.value
        values |= {f"loss/by_timestep/{index}": mean for index, mean in self._bins.drain().items()}
        values |= {f"lr/{group}": rate for group, rate in report.rates.items()}
        values["perf/images_per_s"] = report.images_per_s
        values["perf/data_wait"] = report.data_wait
        if report.memory_bytes:
            values["memory/peak_gib"] = report.memory_bytes / 2**30
        if report.loss_scale != 1.0:
            values["scaler/scale"] = report.loss_scale
        return values

    def state(self) -> dict[str, Any]:
        return {"smoothed": self._running_mean.state(), "by_timestep": self._bins.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._running_mean.load(state.get("smoothed", {}))
        self._bins.load(state.get("by_timestep", {}))


def is_written(step: int, every: int, progress: Progress) -> bool:
    """Whether a step (counted from 0) is logged: the first, every `every`-th, and the last."""
    return step == 0 or (step + 1) % every == 0 or step + 1 >= progress.last_step
