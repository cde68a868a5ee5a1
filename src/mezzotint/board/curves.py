"""Curves of runs as the page for the page: the list of charts, and the points of an interval, thinned."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from mezzotint.board.reading import runs
from mezzotint.board.reading.metrics import Axis, MetricsTable, RunMetrics

Numbers = NDArray[np.float64]
WIDEST = 8000
"""Largest width of a chart, in points."""


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart. name: its heading; unit: of its values; tags: a pattern for each of its curves; help: one line. scale:
    factor of the values. ordered: whether the curves have an order, which their colours then show."""

    name: str
    tags: tuple[str, ...]
    unit: str = ""
    help: str = ""
    scale: float = 1.0
    ordered: bool = False


_BY_TENTH, _AT, _DASHED = "loss/by_timestep/", r"val/.*_at/", "dashed: averaged weights"
CHARTS = (
    Chart("Loss", ("loss", "loss_avg", r"loss/(?!by_timestep)\w+"), help="per step, and smoothed over about 50 steps"),
    Chart("Held-out loss", (r"val/(?!.*_at/).+",), help="at fixed timesteps and noise; the lowest is marked"),
    Chart(
        "Loss by timestep",
        (_BY_TENTH + r"\d",),
        help="by tenth of the schedule, from least noise to most",
        ordered=True,
    ),
    Chart(
        "Held-out loss by timestep",
        (_AT + r"(?!quartile_).+",),
        help=f"from least noise to most; {_DASHED}",
        ordered=True,
    ),
    Chart(
        "Held-out loss by quartile", (_AT + r"quartile_\d",), help=f"from least noise to most; {_DASHED}", ordered=True
    ),
    Chart(
        "Change from the base",
        (r"drift/(?!.*_at/|leak).+",),
        help="relative, at fixed noise and timesteps; 0 is the base",
    ),
    Chart("Leak", (r"drift/leak(_shadow)?",), help="change of the class as a share of that of the trigger"),
    Chart(
        "Change from the base by timestep",
        (r"drift/.*_at/.+",),
        help=f"from least noise to most; {_DASHED}",
        ordered=True,
    ),
    Chart("Learning rate", (r"lr/.+",), help="per parameter group"),
    Chart("Gradient norm", ("norm",), help="before clipping"),
    Chart("Throughput", ("images_per_s",), "images/s", "per step, over all processes"),
    Chart("Waiting for data", ("data_wait",), "%", "share of the step's time", 100.0),
    Chart("Memory", ("memory_bytes",), "GiB", "peak on the device", 1 / 2**30),
    Chart("Device", ("device/utilization", "device/memory"), "%", "time computing, and memory in use by any process"),
    Chart("Device temperature", ("device/temperature",), "°C"),
    Chart("Device power", ("device/power",), "W"),
    Chart("Processors", ("machine/processors",), help="kept busy by the run, on average over ten seconds"),
    Chart("Machine", ("machine/busy",), "%", "share of all processors that are busy, by any process", 100.0),
    Chart(
        "Host memory",
        ("machine/memory_bytes", "machine/available_bytes"),
        "GiB",
        "of the run, and available to any process",
        1 / 2**30,
    ),
    Chart("Loss scale", ("loss_scale",), help="of fp16"),
)
"""The charts of a run, in order; a chart without points is left out."""

_CONSTANT = {"memory_bytes": 0.0, "loss_scale": 1.0}
"""A curve that has only this value is left out."""


def parse_axis(text: str) -> Axis:
    """An axis by its name; `step` for anything else."""
    return cast(Axis, text) if text in get_args(Axis) else "step"


def parse_position(text: str) -> float | None:
    """A position on an axis from a query parameter; None for anything but a finite number."""
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def charts(
    metrics: RunMetrics, path: Path, *, axis: Axis, width: int, begin: float | None = None, end: float | None = None
) -> dict[str, Any]:  # fmt: skip
    """The charts of a run with the points between `begin` and `end`, as JSON."""
    table = metrics.table
    answers = [_chart(chart, table, axis=axis, width=width, begin=begin, end=end) for chart in CHARTS]
    steps, positions = np.array(table.positions["step"]), np.array(table.positions[axis])
    ends = [float(positions[0]), float(positions[-1])] if len(positions) else []
    return {
        "charts": [chart for chart in answers if chart is not None],
        "axis": axis,
        "ends": ends,
        "share": metrics.share_read,
        "marks": _position_marks(runs.marks(runs.history(path), path), steps, positions),
        "read": len(positions),
    }


def _chart(
    chart: Chart, table: MetricsTable, *, axis: Axis, width: int, begin: float | None, end: float | None
) -> dict[str, Any] | None:  # fmt: skip
    pattern = re.compile("|".join(chart.tags))
    series = []
    for tag in sorted((tag for tag in table.rows if pattern.fullmatch(tag)), key=_natural_key):
        x, y = table.curve(tag, axis)
        if tag in _CONSTANT and bool(np.all(y == _CONSTANT[tag])):
            continue
        lowest = _find_lowest(x, y) if tag.startswith("val/") and "_at/" not in tag else None
        few_x, few_y = select_points(x, y, 2 * width, begin=begin, end=end)
        series.append(
            {"tag": tag, "label": _label(tag), "x": few_x.tolist(), "y": numbers(few_y * chart.scale), "lowest": lowest,
             "count": len(x)}
        )  # fmt: skip
    if not series:
        return None
    return {"name": chart.name, "unit": chart.unit, "help": chart.help, "ordered": chart.ordered, "series": series}


def _label(tag: str) -> str:
    """The legend of a tag, without what the chart's heading contains. Tenths and quarters are in percent."""
    match = re.fullmatch(r"(?:val|drift)/(.+?)(_shadow)?_at/(quartile_)?(.+)", tag)
    if match is None:
        tenth = re.fullmatch(_BY_TENTH + r"(\d)", tag)
        return _share(int(tenth[1]), 10) if tenth else re.sub("^(lr|drift)/", "", tag)
    fraction = _share(int(match[4]), 4) if match[3] and match[4].isdecimal() else match[4]
    return " ".join(filter(None, ["" if match[1] == "loss" else match[1], fraction, match[2] and "averaged"]))


def _share(number: int, parts: int) -> str:
    return f"{100 * number // parts}–{100 * (number + 1) // parts} %"


def _natural_key(tag: str) -> list[tuple[int, str]]:
    """A sort key that places 2 before 10: numbers are compared by their count of digits, then by the digits."""
    parts = ((part, part.lstrip("0")) for part in re.split(r"([0-9]+)", tag))
    return [(len(digits), digits) if part.isascii() and part.isdigit() else (-1, part) for part, digits in parts]


def _find_lowest(x: NDArray[np.float64], y: NDArray[np.float64]) -> list[float] | None:
    if not np.isfinite(y).any():
        return None
    at = int(np.nanargmin(np.where(np.isfinite(y), y, np.nan)))
    return [float(x[at]), float(y[at])]


def numbers(values: NDArray[np.float64]) -> list[float | None]:
    """Values for JSON: seven significant digits, as they are stored, and null for non-finite ones."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values.tolist()]


def _position_marks(
    marks: Iterable[dict[str, Any]], steps: NDArray[np.float64], positions: NDArray[np.float64]
) -> list[dict[str, Any]]:  # fmt: skip
    """Marks with their position on the axis."""
    if not len(steps):
        return []
    order = np.argsort(steps, kind="stable")
    return [
        mark | {"x": float(np.interp(mark["step"], steps[order], positions[order]))}
        for mark in marks
        if mark["step"] is not None
    ]


def compare_charts(
    tables: Mapping[str, MetricsTable], *, axis: Axis, width: int, begin: float | None = None, end: float | None = None
) -> dict[str, Any]:  # fmt: skip
    """The charts of several runs on top of each other, as JSON: for each tag, a curve of every run that has it."""
    answers = []
    rows: Sequence[tuple[str, str]] = (
        ("Loss, smoothed", "loss_avg"), ("Held-out loss", "val/loss"), ("Held-out loss, averaged weights",
        "val/loss_shadow"), ("Gradient norm", "norm"), ("Throughput", "images_per_s"),
    )  # fmt: skip
    for name, tag in rows:
        series = []
        for run, table in tables.items():
            x, y = table.curve(tag, axis)
            if not len(x) and tag == "loss_avg":
                x, y = table.curve("loss", axis)
            if len(x):
                few_x, few_y = select_points(x, y, 2 * width, begin=begin, end=end)
                series.append(
                    {
                        "tag": run,
                        "label": run,
                        "x": few_x.tolist(),
                        "y": numbers(few_y),
                        "lowest": None,
                        "count": len(x),
                    }
                )
        if series:
            answers.append({"name": name, "unit": "", "help": tag, "ordered": False, "series": series})
    ends = [
        float(table.positions[axis][index]) for table in tables.values() for index in (0, -1) if table.positions[axis]
    ]
    return {"charts": answers, "axis": axis, "ends": [min(ends), max(ends)] if ends else [], "share": 1.0, "marks": []}


def thin_points(x: Numbers, y: Numbers, most: int) -> tuple[Numbers, Numbers]:
    """At most `most` points of a curve, in order: the first and the last, and the lowest and highest of each of as many
    equal intervals as fit. Non-finite points are kept only in intervals without a finite one. A curve that is short
    enough is returned unchanged."""
    count = len(x)
    if count <= max(4, most):
        return x, y
    num_intervals = max(1, (most - 2) // 2)
    edges = np.linspace(0, count, num_intervals + 1).astype(np.int64)
    low = _find_lowest_indices(np.where(np.isfinite(y), y, np.inf), edges)
    high = _find_lowest_indices(np.where(np.isfinite(y), -y, np.inf), edges)
    chosen = np.unique(np.concatenate([[0], low, high, [count - 1]]))
    return x[chosen], y[chosen]


def _find_lowest_indices(values: Numbers, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """The index of the smallest value of each interval, the first of equal ones."""
    smallest = np.minimum.reduceat(values, edges[:-1])
    hits = np.flatnonzero(values == np.repeat(smallest, np.diff(edges)))
    interval = np.searchsorted(edges, hits, side="right") - 1
    _, first = np.unique(interval, return_index=True)
    return hits[first]


def select_points(
    x: Numbers, y: Numbers, most: int, *, begin: float | None = None, end: float | None = None
) -> tuple[Numbers, Numbers]:
    """`thin_points` of the part of a curve between two positions, with one neighbour on each side, which continues the
    line to the edge."""
    first = 0 if begin is None else max(0, int(np.searchsorted(x, begin)) - 1)
    last = len(x) if end is None else min(len(x), int(np.searchsorted(x, end, side="right")) + 1)
    return thin_points(x[first:last], y[first:last], most)
