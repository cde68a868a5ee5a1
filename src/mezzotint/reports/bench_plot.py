"""The picture of a benchmark: the loss of each step, and below it the seconds each step took."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

_INK, _PAPER_INK = "#222222", "#777777"
_COLOURS = ("#1f4e8c", "#c4462d", "#3d7a5f", "#7a5fa0")


@dataclass(frozen=True, slots=True)
class Run:
    """A row of a benchmark. loss, seconds: of each step, in order."""

    name: str
    loss: Sequence[float]
    seconds: Sequence[float]


def plot(runs: Sequence[Run], *, title: str, warm_up: int) -> bytes:
    """A PNG of 1650 × 1050 pixels. runs: at least one, of at least one step. warm_up: steps that the numbers leave out,
    shaded."""
    figure = Figure(figsize=(11, 7), dpi=150, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1))
    for number, run in enumerate(runs):
        colour = _COLOURS[number % len(_COLOURS)]
        steps = np.arange(1, len(run.loss) + 1)
        label = run.name.replace("$", r"\$")
        above.plot(steps, run.loss, color=colour, lw=1.2, marker=".", ms=4, label=label)
        median = float(np.median(run.seconds[min(warm_up, len(run.seconds) - 1) :]))
        below.plot(steps, run.seconds, color=colour, lw=1.2, marker=".", ms=4, label=f"{label}, median {median:.3g} s")
        below.axhline(median, color=colour, lw=0.8, ls="--")
    above.set_title(title.replace("$", r"\$"), loc="left", fontsize=13, color=_INK, fontweight="bold", pad=12)
    above.set_ylabel("loss of the update", color=_PAPER_INK)
    below.set_ylabel("seconds a step", color=_PAPER_INK)
    below.set_xlabel("step", color=_PAPER_INK)
    below.set_ylim(bottom=0.0)
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    longest = max(len(run.loss) for run in runs)
    below.set_xlim(0.5, longest + 0.5)
    for axes in (above, below):
        _dress(axes, warm_up)
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _dress(axes: Any, warm_up: int) -> None:
    if warm_up:
        axes.axvspan(0.5, warm_up + 0.5, color="#f2f2f2", zorder=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#bbbbbb")
    axes.tick_params(colors=_PAPER_INK, labelsize=9)
    axes.grid(axis="y", color="#eeeeee", lw=0.8)
    axes.set_axisbelow(True)
    axes.legend(loc="best", frameon=False, labelcolor=_INK, fontsize=9)
