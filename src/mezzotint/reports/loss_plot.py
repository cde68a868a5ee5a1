"""The picture of a run's loss: logged steps, the smoothed curve, held-out measurements, the learning rate below."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mezzotint.reports.curves import Column, Curves

_INK, _PAPER_INK, _RAW, _SMOOTH, _HELD, _EMA = "#222222", "#777777", "#b9c6d8", "#1f4e8c", "#c4462d", "#e08e2b"
_RATES = ("#3d7a5f", "#7a5fa0", "#a07a3d", "#5f8fa0")


def plot(curves: Curves, *, title: str) -> bytes:
    """A PNG of 1650 × 1050 pixels. Needs at least one step."""
    figure = Figure(figsize=(11, 7), dpi=150, facecolor="white")
    FigureCanvasAgg(figure)
    # fixed margins and little compression: working out a layout takes as long as the rest of the drawing
    figure.subplots_adjust(left=0.075, right=0.985, top=0.94, bottom=0.07, hspace=0.06)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    _draw_loss(above, curves)
    _draw_rates(below, curves.rates, curves.steps)
    above.set_title(_plain(title), loc="left", fontsize=13, color=_INK, fontweight="bold", pad=12)
    below.set_xlabel("step", color=_PAPER_INK)
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    # room at the sides: a run of one step has an axis, too
    first = min(curves.steps[0], *curves.held_out_steps.tolist(), np.inf)
    room = max(0.5, 0.01 * (curves.steps[-1] - first))
    below.set_xlim(first - room, curves.steps[-1] + room)
    for axes in (above, below):
        _dress(axes)
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None}, pil_kwargs={"compress_level": 1})
    return file.getvalue()


def _draw_loss(axes: Any, curves: Curves) -> None:
    few = len(curves.steps) <= 60
    shown = "each step" if curves.is_every_step else "logged steps"
    axes.plot(curves.steps, curves.loss, color=_RAW, lw=0.9, marker="." if few else None, ms=5, label=shown)
    axes.plot(curves.steps, curves.smoothed, color=_SMOOTH, lw=2.2, label="smoothed over all steps")
    for values, colour, marker, label in (
        (curves.held_out, _HELD, "o", "held out"),
        (curves.held_out_ema, _EMA, "D", "held out, averaged weights"),
    ):
        if np.isfinite(values).any():
            axes.plot(curves.held_out_steps, values, color=colour, lw=1.4, marker=marker, ms=4.5, label=label)
    curve = np.concatenate([c[np.isfinite(c)] for c in (curves.smoothed, curves.held_out, curves.held_out_ema)])
    raw = curves.loss[np.isfinite(curves.loss)]
    if len(raw):
        # single steps scatter widely: the highest percent of them may leave the picture, a curve never does
        top = max(np.quantile(raw, 0.99), curve.max())
        low = min(raw.min(), curve.min())
        room = 0.08 * (top - low) or 0.1 * abs(top) or 0.1
        axes.set_ylim(max(0.0, low - room) if low >= 0 else low - room, top + room)
    axes.set_ylabel("loss", color=_PAPER_INK)
    axes.legend(loc="upper right", frameon=False, labelcolor=_INK, fontsize=10)


def _draw_rates(axes: Any, rates: Mapping[str, Column], steps: Column) -> None:
    by_curve: dict[bytes, list[str]] = {}
    for name, values in rates.items():
        by_curve.setdefault(values.tobytes(), []).append(name)
    for place, names in enumerate(by_curve.values()):
        label = _plain(", ".join(names))
        axes.plot(steps, rates[names[0]], color=_RATES[place % len(_RATES)], lw=1.6, label=label)
    axes.set_ylabel("learning rate", color=_PAPER_INK)
    axes.set_ylim(bottom=0.0)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(lambda x, _: f"{x:.3g}")
    if by_curve:
        axes.legend(loc="best", frameon=False, labelcolor=_INK, fontsize=9)


def _dress(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#bbbbbb")
    axes.tick_params(colors=_PAPER_INK, labelsize=9)
    axes.grid(axis="y", color="#eeeeee", lw=0.8)
    axes.set_axisbelow(True)


def _plain(text: str) -> str:
    return text.replace("$", r"\$")
