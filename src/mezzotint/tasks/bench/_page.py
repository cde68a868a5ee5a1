"""The report of `bench`: one JSON document, and a table made from it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mezzotint.settings.counting import format_bytes, format_duration
from mezzotint.shapes import Size
from mezzotint.tasks.bench._peaks import SOURCE
from mezzotint.tasks.bench.measuring import Measured, Step

BLOCK = 10
"""Steps per block; the speed of rows is compared block by block."""

READ_AT = 100
"""The step at which the published protocol reads the progress bar: the last of 101 steps is not counted."""

_SMOOTHING = 0.3  # of tqdm's bar

Row = dict[str, Any]
_LINES = {
    "steps, of them timed": "{steps}, {timed_steps}",
    "times as fast": "{faster}",
    "images/s, processed": "{images_per_second[processed]:.4g}",
    "images/s, distinct": "{images_per_second[distinct]:.4g}",
    "images/s and device": "{images_per_second_and_device:.4g}",
    "seconds a step, median": "{seconds_per_step[median]:.4g}",
    "CPU seconds a step": "{cpu_seconds_per_step:.4g}",
    "waiting for data": "{wait:.3g} %",
    "peak memory": "{memory}",
    "TFLOP an image": "{tera_an_image:.4g}",
    "TFLOP/s and device": "{tera_a_second:.4g}",
    "MFU": "{utilization}",
    "set-up": "{setup}",
    "of it, filling caches": "{filling}",
    "an epoch": "{protocol[micro_batches_per_epoch]} micro-batches, {protocol[updates_per_epoch]} updates",
    "epochs started": "{protocol[epochs]}",
    "fill-ups an epoch": "{protocol[fill_ups_per_epoch]}",
    "total batch (gbsz)": "{protocol[total_batch]}",
    "seconds a step on the bar": "{protocol[bar_seconds_per_step]:.4g}",
    "IPS by the formula": "{protocol[ips_by_the_bar]:.4g}",
    "IPS, elapsed": "{protocol[ips_by_elapsed_time]:.4g}",
    "loss, last micro-batch": "{target[found]:.4f} ({reached} {target[below]:g})",
    "loss, last update": "{loss[last]:.4f}",
}
"""The lines of the table, formatted from a row and `_format_row`; a cell is empty where a row has no such figure."""


@dataclass(frozen=True, slots=True)
class Context:
    """Values that all rows share. flops: of one sample by image size; empty if not counted. peak: FLOP/s of one device;
    None if unknown. target: the loss to stay below, from a published protocol; None without one."""

    processes: int
    device: str
    warm_up: int
    flops: Mapping[Size, int]
    peak: float | None
    target: float | None


def row(measured: Measured, context: Context, changes: Sequence[str]) -> Row:
    """A row as JSON values. changes: settings that differ from the recipe."""
    steps = measured.steps
    timed = steps[min(context.warm_up, len(steps) - 1) :]
    return {
        "name": measured.name,
        "changes": list(changes),
        "steps": len(steps),
        "timed_steps": len(timed),
        **_speed(timed, context),
        "peak_memory_bytes": measured.memory,
        "setup_seconds": measured.setup_seconds,
        "cache_seconds": measured.cache_seconds,
        **_arithmetic(timed, context),
        "protocol": None if context.target is None else _protocol(measured, context),
        "loss": {
            "first": steps[0].loss,
            "last": steps[-1].loss,
            "last_micro_batch": steps[-1].last_micro_loss,
        },
        "target": _target(steps[-1].last_micro_loss, context),
        "step_seconds": [step.seconds for step in steps],
        "step_cpu_seconds": [step.cpu_seconds for step in steps],
        "step_samples": [step.processed for step in steps],
        "step_loss": [step.loss for step in steps],
    }


def compare(rows: Sequence[Row], warm_up: int, *, by_cpu: bool) -> list[Row]:
    """The rows, each with its speed relative to the stock loop, or else to the first row: the ratio of seconds per
    image in blocks of ten steps, at least three blocks, as median and extremes. by_cpu: whether to show CPU seconds."""
    base = next((r for r in rows if r["name"] == "stock"), rows[0])
    count = len(base["step_seconds"])
    blocks = [*pairwise([*range(warm_up, count, max(1, min(BLOCK, (count - warm_up) // 3))), count])]

    def ratios(r: Row, meter: str) -> Row | None:
        ours, theirs = (
            [sum(which[meter][a:b]) / max(1, sum(which["step_samples"][a:b])) for a, b in blocks] for which in (r, base)
        )
        round_ratios = [b / a for a, b in zip(ours, theirs, strict=True) if a and b]
        if not round_ratios:
            return None
        return {
            "median": statistics.median(round_ratios),
            "lowest": min(round_ratios),
            "highest": max(round_ratios),
            "rounds": len(round_ratios),
        }

    def compare_to_base(r: Row) -> Row | None:
        if r is base:
            return None
        by = {"seconds": ratios(r, "step_seconds"), "cpu_seconds": ratios(r, "step_cpu_seconds")}
        return {"row": base["name"], "by": "CPU seconds" if by_cpu else "seconds", **by}

    return [r | {"against": compare_to_base(r)} for r in rows]


def table(document: Mapping[str, Any]) -> list[str]:
    """The lines of the table, with a column for each row of the document."""
    rows: list[Row] = document["rows"]
    lines = [f"mezzotint bench {document['recipe']}", f"{document['processes']} x {document['device']}", ""]
    lines.append(_columns("", [r["name"] for r in rows]))
    for title, form in _LINES.items():
        cells = [_cell(form, r | _format_row(r)) for r in rows]
        if any(cells):
            lines.append(_columns(title, cells))
    lines += [f"{r['name']}: {', '.join(r['changes'])}" for r in rows if r["changes"]]
    return [*lines, "", *_remarks(rows)]


def _cell(form: str, values: Row) -> str:
    try:
        return form.format_map(values)
    except (TypeError, KeyError):  # null, or absent
        return ""


def _format_row(r: Row) -> Row:
    """Figures of a row in display units or as text; None for missing ones."""
    flops, speed, comparison = r["flops_per_image"], r["flops_per_second"], r.get("against")
    ratio = comparison and comparison["cpu_seconds" if comparison["by"] == "CPU seconds" else "seconds"]
    utilization = "" if speed is None else "unknown peak"
    if r["mfu"] is not None:
        utilization = f"{100 * r['mfu']:.3g} %"
    return {
        "wait": 100 * r["data_wait_share"],
        "memory": format_bytes(r["peak_memory_bytes"]),
        "tera_an_image": None if flops is None else flops / 1e12,
        "tera_a_second": None if speed is None else speed / 1e12,
        "utilization": utilization,
        "setup": format_duration(r["setup_seconds"]),
        "filling": format_duration(r["cache_seconds"]) if r["cache_seconds"] else "",
        "faster": "{median:.3g} ({lowest:.3g} to {highest:.3g}) of {row}".format_map(comparison | ratio)
        if ratio
        else "",
        "reached": r["target"] and ("below" if r["target"]["reached"] else "not below"),
    }


def _speed(timed: Sequence[Step], context: Context) -> Row:
    seconds = sorted(step.seconds for step in timed)
    processed, distinct = sum(step.processed for step in timed), sum(step.distinct for step in timed)
    return {
        "images_per_second": {"processed": processed / sum(seconds), "distinct": distinct / sum(seconds)},
        "images_per_second_and_device": processed / sum(seconds) / context.processes,
        "seconds_per_step": {
            "median": statistics.median(seconds),
            "fastest": seconds[0],
            "slowest": seconds[-1],
            "mean": statistics.fmean(seconds),
        },
        "data_wait_share": sum(step.wait_seconds for step in timed) / sum(seconds),
        "cpu_seconds_per_step": statistics.fmean(step.cpu_seconds for step in timed),
    }


def _arithmetic(timed: Sequence[Step], context: Context) -> Row:
    if not context.flops:
        return {"flops_per_image": None, "flops_per_second": None, "peak_flops_per_second": None, "mfu": None}
    total = sum(count * context.flops[shape] for step in timed for shape, count in step.sizes.items())
    speed = total / sum(step.seconds for step in timed) / context.processes
    return {
        "flops_per_image": total / sum(step.processed for step in timed),
        "flops_per_second": speed,
        "peak_flops_per_second": context.peak,
        "mfu": None if context.peak is None else speed / context.peak,
    }


def _protocol(measured: Measured, context: Context) -> Row:
    """The figures of the published protocol: images per second and device by its formula, gbsz / seconds / devices,
    which counts every update as a full batch."""
    timeline, seconds = measured.timeline, [step.seconds for step in measured.steps]
    epoch, total_batch = timeline.epoch(0), measured.recipe.data.batch_size * measured.recipe.optim.accumulation
    read_at = min(READ_AT, len(seconds))
    on_the_bar, elapsed = bar_seconds(seconds[:read_at]), statistics.fmean(seconds)
    return {
        "images": measured.images,
        "total_batch": total_batch,
        "micro_batches_per_epoch": epoch.num_batches,
        "updates_per_epoch": epoch.num_steps,
        "fill_ups_per_epoch": epoch.filled,
        "epochs": timeline.locate(len(seconds) - 1)[0] + 1,
        "images_of_the_run": sum(step.processed for step in measured.steps),
        "read_at_step": read_at,
        "bar_seconds_per_step": on_the_bar,
        "elapsed_seconds_per_step": elapsed,
        "ips_by_the_bar": total_batch / on_the_bar / context.processes,
        "ips_by_elapsed_time": total_batch / elapsed / context.processes,
    }


def bar_seconds(seconds: Sequence[float]) -> float:
    """The seconds per step that tqdm's bar shows after these steps: their exponential mean with bias correction,
    (0.3 x_n + 0.7 · 0.3 x_{n−1} + …) / (1 − 0.7ⁿ). seconds: of each step, in order; at least one."""
    mean = 0.0
    for value in seconds:
        mean = _SMOOTHING * value + (1.0 - _SMOOTHING) * mean
    return mean / (1.0 - (1.0 - _SMOOTHING) ** len(seconds))


def _target(loss: float, context: Context) -> Row | None:
    below = context.target
    return None if below is None else {"below": below, "found": loss, "reached": loss < below}


def _columns(title: str, cells: Sequence[str]) -> str:
    return f"{title:<27}{''.join(f'{cell:<34}' for cell in cells)}".rstrip()


def _remarks(rows: Sequence[Row]) -> list[str]:
    remarks = []
    if any(r["target"] for r in rows):
        remarks = [
            "IPS by the formula: gbsz / seconds / devices, with the seconds that a smoothed progress bar shows at step "
            f"{rows[0]['protocol']['read_at_step']}; it counts every update as a full batch",
            "loss, last micro-batch: of process 0, as the protocol reads its target; one micro-batch at random "
            "timesteps, which does not indicate learning; the line below is the mean of the whole update",
        ]
    if any(r["mfu"] is not None for r in rows):
        remarks.append(f"MFU: FLOP/s of the trained networks divided by the {SOURCE}")
    if comparisons := [r["against"] for r in rows if r.get("against")]:
        remarks.append(
            f"times as fast: by {comparisons[0]['by']} per image; the median of blocks of steps, with the extremes; "
            "not significant if 1 is between them"
        )
    return remarks
