"""Plots of a run's loss, of overfitting and of a benchmark, PNG of 1650 × 1050 pixels."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from mezzotint.errors import escape_line
from mezzotint.reports.curves import Column, Curves, OverfitCurves

_INK, _PAPER_INK, _RAW, _SMOOTH, _HELD, _EMA = "#222222", "#777777", "#b9c6d8", "#1f4e8c", "#c4462d", "#e08e2b"
_RATES = ("#3d7a5f", "#7a5fa0", "#a07a3d", "#5f8fa0")
_RUNS = (_SMOOTH, _HELD, "#3d7a5f", "#7a5fa0")


@dataclass(frozen=True, slots=True)
class BenchRun:
    """A row of a benchmark. loss, seconds, samples: one value for each step, in order."""

    name: str
    loss: Sequence[float]
    seconds: Sequence[float]
    samples: Sequence[int]


def plot_loss(curves: Curves, *, title: str) -> bytes:
    """Plots logged steps, the smoothed curve and held-out measurements; the learning rate below. Needs at least one
    step."""
    # margin at the sides, for a run of one step
    first = min(curves.steps[0], *curves.held_out_steps.tolist(), np.inf)
    margin = max(0.5, 0.01 * (curves.steps[-1] - first))
    figure, above, below = _panels(title, (3, 1), (first - margin, curves.steps[-1] + margin))
    # fixed margins and low compression: an automatic layout takes as long as the rest of the plot
    figure.subplots_adjust(left=0.075, right=0.985, top=0.94, bottom=0.07, hspace=0.06)
    _draw_loss(above, curves)
    _draw_rates(below, curves.rates, curves.steps)
    return _png(figure, pil_kwargs={"compress_level": 1})


def plot_bench(runs: Sequence[BenchRun], *, title: str, warm_up: int) -> bytes:
    """Plots images per second of each step, one strip for each row, and the losses next to it. runs: at least one, of
    at least one step. warm_up: number of first steps that are not counted; they are shaded."""
    return _png(_bench_figure(runs, title=title, warm_up=warm_up))


def _bench_figure(runs: Sequence[BenchRun], *, title: str, warm_up: int) -> Figure:
    figure = Figure(figsize=(11, 7), dpi=150, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_escape(title), x=0.01, ha="left", fontsize=13, color=_INK, fontweight="bold")
    strips: Any = figure.subplots(len(runs), 2, sharex=True, sharey="col", squeeze=False)
    names: dict[str, Any] = {"over all counted steps": Line2D([], [], color=_PAPER_INK, lw=0.8, ls="--")}
    for number, (run, (left, right)) in enumerate(zip(runs, strips, strict=True)):
        colour = _RUNS[number % len(_RUNS)]
        steps = np.arange(1, len(run.loss) + 1)
        speeds = np.asarray(run.samples) / np.maximum(np.asarray(run.seconds), 1e-9)
        timed = slice(min(warm_up, len(speeds) - 1), None)
        speed = sum(run.samples[timed]) / max(sum(run.seconds[timed]), 1e-9)
        left.plot(steps, speeds, color=colour, lw=1.2, marker=".", ms=4)
        left.axhline(speed, color=colour, lw=0.8, ls="--")
        left.set_title(f"{_escape(run.name)}: {speed:.4g} images/s", loc="left", fontsize=11, color=_INK)
        left.set_ylabel("images per second", color=_PAPER_INK)
        right.plot(steps, run.loss, color=colour, lw=1.2, marker=".", ms=4)
        right.set_title("loss of the update", loc="left", fontsize=11, color=_PAPER_INK)
        for axes in (left, right):
            _plain_axes(axes)
            if warm_up:
                names["warm-up, not counted"] = axes.axvspan(0.5, warm_up + 0.5, color="#f2f2f2", zorder=0)
    strips[0][0].set_ylim(bottom=0.0)
    strips[0][0].set_xlim(0.5, max(len(run.loss) for run in runs) + 0.5)
    for axes in strips[-1]:
        axes.set_xlabel("step", color=_PAPER_INK)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    # below all strips, where it covers no curve
    figure.legend(names.values(), names, loc="outside lower left", ncols=2, frameon=False, labelcolor=_INK, fontsize=10)
    return figure


def plot_overfit(curves: OverfitCurves, *, best: int, title: str) -> bytes:
    """Plots held-out and trained loss with the gap between them, and below it the same by quarter of the schedule.
    best: the step to mark."""
    figure = Figure(figsize=(11, 7), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    figure.subplots_adjust(left=0.075, right=0.985, top=0.94, bottom=0.07, hspace=0.42, wspace=0.3)
    grid = figure.add_gridspec(2, 4, height_ratios=(3, 2))
    above: Any = figure.add_subplot(grid[0, :])
    above.set_title(_escape(f"{title}: held out and trained"), loc="left", fontsize=13, color=_INK, fontweight="bold")
    _draw_gap(above, curves.steps, curves.held_out, curves.trained)
    if np.isfinite(curves.average).any():
        above.plot(
            curves.steps, curves.average, color=_EMA, lw=1.4, marker="D", ms=4, label="held out, averaged weights"
        )
    of = " of the averaged weights" if np.isfinite(curves.average).any() else ""
    above.axvline(best, color=_INK, lw=1, ls=":", label=f"best step{of}, {best:,}")
    above.set_ylabel("loss", color=_PAPER_INK)
    above.legend(loc="best", frameon=False, labelcolor=_INK, fontsize=10)
    quartiles = zip(curves.held_quartiles, curves.trained_quartiles, strict=True)
    for index, (held, trained) in enumerate(quartiles):
        axes: Any = figure.add_subplot(grid[1, index])
        noise = {0: ", least noise", 3: ", most noise"}.get(index, "")
        axes.set_title(f"quartile {index}{noise}", loc="left", fontsize=10, color=_INK)
        _draw_gap(axes, curves.steps, held, trained)
        axes.axvline(best, color=_INK, lw=0.8, ls=":")
        axes.set_xlabel("step", color=_PAPER_INK)
        axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
        if not np.isfinite(held).any():
            axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=_PAPER_INK)
    return _png(figure, pil_kwargs={"compress_level": 1})


def _draw_gap(axes: Any, steps: Column, held: Column, trained: Column) -> None:
    axes.plot(steps, held, color=_HELD, lw=1.6, marker="o", ms=3.5, label="held out")
    if np.isfinite(trained).any():
        axes.plot(steps, trained, color=_SMOOTH, lw=1.6, marker="o", ms=3.5, label="trained share")
        axes.fill_between(steps, trained, held, color=_HELD, alpha=0.12, lw=0, label="gap")
    _plain_axes(axes)


def _panels(title: str, heights: tuple[int, int], steps: tuple[float, float]) -> tuple[Figure, Any, Any]:
    """A figure with two empty axes, one above the other. steps: first and last value of the common step axis."""
    figure = Figure(figsize=(11, 7), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=heights)
    above.set_title(_escape(title), loc="left", fontsize=13, color=_INK, fontweight="bold", pad=12)
    below.set_xlabel("step", color=_PAPER_INK)
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    below.set_xlim(*steps)
    for axes in (above, below):
        _plain_axes(axes)
    return figure, above, below


def _plain_axes(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#bbbbbb")
    axes.tick_params(colors=_PAPER_INK, labelsize=9)
    axes.grid(axis="y", color="#eeeeee", lw=0.8)
    axes.set_axisbelow(True)


def _png(figure: Figure, **options: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None}, **options)
    return file.getvalue()


def _draw_loss(axes: Any, curves: Curves) -> None:
    few = len(curves.steps) <= 60
    label = "each step" if curves.is_every_step else "logged steps"
    axes.plot(curves.steps, curves.loss, color=_RAW, lw=0.9, marker="." if few else None, ms=5, label=label)
    axes.plot(curves.steps, curves.running_mean, color=_SMOOTH, lw=2.2, label="smoothed over all steps")
    for values, colour, marker, label in (
        (curves.held_out, _HELD, "o", "held out"),
        (curves.held_out_ema, _EMA, "D", "held out, averaged weights"),
    ):
        if np.isfinite(values).any():
            axes.plot(curves.held_out_steps, values, color=colour, lw=1.4, marker=marker, ms=4.5, label=label)
    curve = np.concatenate([c[np.isfinite(c)] for c in (curves.running_mean, curves.held_out, curves.held_out_ema)])
    raw = curves.loss[np.isfinite(curves.loss)]
    if len(raw):
        # single steps scatter widely: the highest 1 % may be cut off, a curve never is
        top = max(np.quantile(raw, 0.99), curve.max(initial=-np.inf))
        low = min(raw.min(), curve.min(initial=np.inf))
        margin = 0.08 * (top - low) or 0.1 * abs(top) or 0.1
        axes.set_ylim(max(0.0, low - margin) if low >= 0 else low - margin, top + margin)
    axes.set_ylabel("loss", color=_PAPER_INK)
    axes.legend(loc="upper right", frameon=False, labelcolor=_INK, fontsize=10)


def _draw_rates(axes: Any, rates: Mapping[str, Column], steps: Column) -> None:
    by_curve: dict[bytes, list[str]] = {}
    for name, values in rates.items():
        by_curve.setdefault(values.tobytes(), []).append(name)
    for index, names in enumerate(by_curve.values()):
        label = _escape(", ".join(names))
        axes.plot(steps, rates[names[0]], color=_RATES[index % len(_RATES)], lw=1.6, label=label)
    axes.set_ylabel("learning rate", color=_PAPER_INK)
    axes.set_ylim(bottom=0.0)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(lambda x, _: f"{x:.3g}")
    if by_curve:
        axes.legend(loc="best", frameon=False, labelcolor=_INK, fontsize=9)


def _escape(text: str) -> str:
    return escape_line(text).replace("$", r"\$")
