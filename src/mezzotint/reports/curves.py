"""Reads the numbers of a run from metrics.jsonl, by line and as the curves of a loss plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mezzotint import durable
from mezzotint.run_folder import RunFolder

_NUMBERS = {"step", "loss", "loss_avg", "samples", "samples_since", "seconds_since", "images_per_s"}
Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Curves:
    """Numbers of the loss plot. steps, loss, running_mean: (n,); rates: (n,) by group; held_out_steps, held_out,
    held_out_ema: (m,). NaN for missing values. is_every_step: whether no step is missing between the first and the
    last."""

    steps: Column
    loss: Column
    running_mean: Column
    rates: Mapping[str, Column]
    held_out_steps: Column
    held_out: Column
    held_out_ema: Column
    is_every_step: bool = True


@dataclass(frozen=True, slots=True)
class Metrics:
    """The lines of metrics.jsonl: steps, held-out measurements, and those of drift; each step once, in order."""

    steps: Sequence[dict[str, Any]]
    held_out: Sequence[dict[str, Any]]
    drift: Sequence[dict[str, Any]] = ()

    @property
    def tag(self) -> str:
        """The key of the overall held-out loss: the mean of several sets, or that of the only set."""
        named = [key for line in self.held_out for key in line if key.startswith("val/") and "_at/" not in key]
        return "val/all" if "val/all" in named else next(iter(named), "val/loss")


def read_metrics(folder: RunFolder) -> Metrics:
    """Reads metrics.jsonl. If several lines have the same step, the last one counts. Skips truncated lines and lines
    with something other than a number where a number belongs."""
    steps: dict[int, dict[str, Any]] = {}
    held_out: dict[int, dict[str, Any]] = {}
    drift: dict[int, dict[str, Any]] = {}
    for line in durable.read_own_lines(folder.metrics):
        if not isinstance(line.get("step"), int) or not _has_numbers(line):
            continue
        if "loss" in line:
            steps[line["step"]] = line
        elif any(key.startswith("val/") for key in line):
            held_out[line["step"]] = line
        elif any(key.startswith("drift/") for key in line):
            drift[line["step"]] = line
    return Metrics(*([lines[n] for n in sorted(lines)] for lines in (steps, held_out, drift)))


def _has_numbers(line: Mapping[str, Any]) -> bool:
    try:
        for name, value in line.items():
            if name in _NUMBERS or name.startswith(("lr/", "val/", "drift/")):
                float(value)
        return math.isfinite(float(line.get("steps_since", 1))) and isinstance(line.get("epoch", 0), int)
    except (TypeError, ValueError, OverflowError):
        return False


def curves_of(metrics: Metrics) -> Curves:
    """The curves of the plot."""
    rates = sorted({name for line in metrics.steps for name in line if name.startswith("lr/")})
    return Curves(
        steps=_column(metrics.steps, "step"),
        loss=_column(metrics.steps, "loss"),
        running_mean=mean_loss_of(metrics),
        is_every_step=metrics.steps[-1]["step"] - metrics.steps[0]["step"] < len(metrics.steps),
        rates={name.removeprefix("lr/"): _column(metrics.steps, name) for name in rates},
        held_out_steps=_column(metrics.held_out, "step"),
        held_out=_column(metrics.held_out, metrics.tag),
        held_out_ema=_column(metrics.held_out, f"{metrics.tag}_shadow"),
    )


@dataclass(frozen=True, slots=True)
class OverfitCurves:
    """Losses measured in the same way on held-out and on trained images, (n,) each, NaN for missing values. average:
    held-out loss of the averaged weights. *_quartiles: by quarter of the schedule. tag: key of the held-out loss."""

    tag: str
    steps: Column
    held_out: Column
    average: Column
    trained: Column
    held_quartiles: tuple[Column, ...]
    trained_quartiles: tuple[Column, ...]


def overfit_curves(metrics: Metrics) -> OverfitCurves | None:
    """The curves of a run that measured a held-out loss; None for other runs."""
    keys = dict.fromkeys(key for line in metrics.held_out for key in line if key.startswith("val/"))
    sets = [key for key in keys if "_at/" not in key and not key.endswith("_shadow")]
    untrained = [key for key in sets if key not in ("val/train", "val/all")]
    if not untrained:
        return None
    tag = "val/all" if "val/all" in sets else untrained[0]

    def quartile(tags: Sequence[str], index: int) -> Column:
        columns = [_column(metrics.held_out, f"{tag}_at/quartile_{index}") for tag in tags]
        return np.asarray(sum(columns) / len(columns), dtype=np.float64)

    return OverfitCurves(
        tag=tag,
        steps=_column(metrics.held_out, "step"),
        held_out=_column(metrics.held_out, tag),
        average=_column(metrics.held_out, f"{tag}_shadow"),
        trained=_column(metrics.held_out, "val/train"),
        held_quartiles=tuple(quartile(untrained, index) for index in range(4)),
        trained_quartiles=tuple(quartile(["val/train"], index) for index in range(4)),
    )


def mean_loss_of(metrics: Metrics) -> Column:
    """The smoothed loss as it was logged and shown on the terminal."""
    return _column(metrics.steps, "loss_avg")


def _column(lines: Sequence[dict[str, Any]], name: str) -> Column:
    return np.array([float(line.get(name, "nan")) for line in lines], dtype=np.float64)
