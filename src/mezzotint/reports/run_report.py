"""What a run was, in one picture and a few lines: logs/loss.png and logs/report.txt, from the run folder alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import durable, outside
from mezzotint.reports.curves import Curves
from mezzotint.run_folder import RunFolder

_BETA = 0.98


@dataclass(frozen=True, slots=True)
class Metrics:
    """metrics.jsonl by kind of line: of steps, and of held-out measurements; each step once, in order. tag: the
    held-out number that stands for all of them."""

    steps: Sequence[dict[str, Any]]
    held_out: Sequence[dict[str, Any]]

    @property
    def tag(self) -> str:
        """Of several sets their mean, otherwise the one there is."""
        named = [key for line in self.held_out for key in line if key.startswith("val/") and "_at/" not in key]
        return "val/all" if "val/all" in named else next(iter(named), "val/loss")


def run_report(folder: RunFolder) -> tuple[Path, ...]:
    """Writes logs/loss.png (when a step was logged) and logs/report.txt; returns what was written.

    Raises StorageError when the disk refuses.
    """
    # here, not above: matplotlib takes half a second that no start of a training should pay
    from mezzotint.reports.loss_plot import plot

    metrics = read_metrics(folder)
    written = []
    with durable.storage_errors(folder.logs):
        folder.logs.mkdir(parents=True, exist_ok=True)
        if metrics.steps:
            written.append(folder.logs / "loss.png")
            durable.write_file(written[-1], plot(curves_of(metrics), title=folder.path.name))
        written.append(folder.logs / "report.txt")
        durable.write_file(written[-1], "\n".join(summary(folder)) + "\n")
    return tuple(written)


def summary(folder: RunFolder) -> tuple[str, ...]:
    """The lines of logs/report.txt: steps and time, loss, held-out loss, bad steps, checkpoints, exports, previews.

    Steps, samples and time count every step of the run, logged or not; the loss is of the logged ones.
    """
    metrics = read_metrics(folder)
    lines = [f"run {folder.path.name}", *_training_lines(metrics)]
    if attempts := folder.attempts():
        lines.append(f"attempts      {attempts}")
    bad = outside.read_lines(folder.bad_steps)
    lines.append(f"bad steps     {len(bad)}" + (f", the last at step {bad[-1].get('step')}" if bad else ""))
    for word, place, pattern in (
        ("checkpoints", folder.checkpoints, "step-*"),
        ("exports", folder.exports, "[!.]*"),
        ("previews", folder.samples, "grid.png"),
    ):
        names = sorted(path.name for path in place.glob(pattern)) if place.is_dir() else []
        lines.append(f"{word:<13} {f'{place.name}/' + ', '.join(names) if names else 'none'}")
    return tuple(lines)


def read_metrics(folder: RunFolder) -> Metrics:
    """Reads metrics.jsonl. Of lines with the same step the last one counts; torn lines are left out."""
    steps: dict[int, dict[str, Any]] = {}
    held_out: dict[int, dict[str, Any]] = {}
    for line in outside.read_lines(folder.metrics):
        if not isinstance(line.get("step"), int):
            continue
        if "loss" in line:
            steps[line["step"]] = line
        elif any(key.startswith("val/") for key in line):
            held_out[line["step"]] = line
    return Metrics([steps[n] for n in sorted(steps)], [held_out[n] for n in sorted(held_out)])


def curves_of(metrics: Metrics) -> Curves:
    """The curves of the plot."""
    rates = sorted({name for line in metrics.steps for name in line if name.startswith("lr/")})
    return Curves(
        steps=_column(metrics.steps, "step"),
        loss=_column(metrics.steps, "loss"),
        smoothed=_smoothed_loss(metrics),
        is_every_step=metrics.steps[-1]["step"] - metrics.steps[0]["step"] < len(metrics.steps),
        rates={name.removeprefix("lr/"): _column(metrics.steps, name) for name in rates},
        held_out_steps=_column(metrics.held_out, "step"),
        held_out=_column(metrics.held_out, metrics.tag),
        held_out_ema=_column(metrics.held_out, f"{metrics.tag}_shadow"),
    )


def smoothed(
    values: NDArray[np.float64], steps: NDArray[np.float64] | None = None, beta: float = _BETA
) -> NDArray[np.float64]:
    """The exponential mean over the steps so far, corrected for its start; what is not finite is passed over. steps:
    how many each value stands for, itself and those before it that are not there; None is one each."""
    means = np.full(len(values), np.nan)
    mean, weight = 0.0, 0.0
    counts = np.ones(len(values)) if steps is None else steps
    for place, (value, count) in enumerate(zip(values.tolist(), counts.tolist(), strict=True)):
        if math.isfinite(value):
            kept = beta**count
            mean, weight = kept * mean + (1 - kept) * value, kept * weight + (1 - kept)
        if weight:
            means[place] = mean / weight
    return means


def _smoothed_loss(metrics: Metrics) -> NDArray[np.float64]:
    """The smoothed loss as it was logged, which the terminal showed; where an older log has none, from the logged
    steps, each standing for those since the one before."""
    logged = _column(metrics.steps, "loss_avg")
    numbers = _column(metrics.steps, "step")
    between = np.diff(numbers, prepend=0.0)
    return np.where(np.isfinite(logged), logged, smoothed(_column(metrics.steps, "loss"), between))


def _training_lines(metrics: Metrics) -> list[str]:
    if not metrics.steps:
        return ["steps         none logged"]
    first, last = metrics.steps[0], metrics.steps[-1]
    curve = _smoothed_loss(metrics)
    counted_steps, samples, seconds = _totals(metrics)
    of = "" if counted_steps == last["step"] else f", {counted_steps:,} of them counted below"
    lines = [
        f"steps         {last['step']:,}, the last in epoch {last.get('epoch', 0) + 1:,}{of}",
        f"samples       {samples:,.0f} in {_words(seconds)} of training, {samples / max(seconds, 1e-9):.3g} images/s",
        f"loss          {float(first['loss']):.4f} at step {first['step']}, smoothed {curve[-1]:.4f} at the end"
        + ("" if len(metrics.steps) == last["step"] else f", of {len(metrics.steps):,} logged steps"),
    ]
    if metrics.held_out:
        begin, end = metrics.held_out[0], metrics.held_out[-1]
        at = [f"{float(line.get(metrics.tag, 'nan')):.4f} at step {line['step']}" for line in (begin, end)]
        lowest = min(metrics.held_out, key=lambda line: np.nan_to_num(float(line.get(metrics.tag, "nan")), nan=np.inf))
        if lowest["step"] not in (begin["step"], end["step"]):
            at.append(f"lowest {float(lowest[metrics.tag]):.4f} at step {lowest['step']}")
        averaged = end.get(f"{metrics.tag}_shadow")
        average = f", averaged weights {float(averaged):.4f}" if averaged is not None else ""
        lines.append(f"held-out loss {', '.join(at)}{average}")
    return lines


def _totals(metrics: Metrics) -> tuple[int, float, float]:
    """Steps, samples and seconds of training, added up over all steps; in a run whose log began before lines told of
    the steps between them, of the logged ones alone where that is all there is."""
    steps, samples, seconds = 0, 0.0, 0.0
    for line in metrics.steps:
        own, speed = float(line.get("samples", 0)), float(line.get("images_per_s", "inf"))
        steps += int(line.get("steps_since", 1))
        samples += float(line.get("samples_since", own))
        seconds += float(line.get("seconds_since", own / max(speed, 1e-9)))
    return steps, samples, seconds


def _column(lines: Sequence[dict[str, Any]], name: str) -> NDArray[np.float64]:
    return np.array([float(line.get(name, "nan")) for line in lines], dtype=np.float64)


def _words(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
