"""What `bench` shows: one JSON document, and a table that is read off it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mezzotint.shapes import Size
from mezzotint.tasks.bench._flops import SOURCE
from mezzotint.tasks.bench._protocol import READ_AT, Protocol, bar_seconds, ips
from mezzotint.tasks.bench._run import Measured, Step
from mezzotint.tasks.check.page import duration, size

_BLOCK = 10  # steps whose speed is one number of the spread
_SAYS_NOTHING = "one micro-batch at timesteps of its own says nothing about learning; see the two lines below"

Row = dict[str, Any]
_LINES = {
    "steps, of them timed": "{steps}, {timed_steps}",
    "images/s, processed": "{images_per_second[processed]:.4g}",
    "images/s, distinct": "{images_per_second[distinct]:.4g}",
    "images/s and device": "{images_per_second_and_device:.4g}",
    "images/s, blocks of 10": "{spread}",
    "seconds a step, median": "{seconds_per_step[median]:.4g}",
    "GPU seconds a step": "{gpu_seconds_per_step:.4g}",
    "CPU seconds a step": "{cpu_seconds_per_step:.4g}",
    "waiting for data": "{wait:.3g} %",
    "peak memory": "{memory}",
    "TFLOP an image": "{tera_an_image:.4g}",
    "TFLOP/s and device": "{tera_a_second:.4g}",
    "MFU": "{utilisation}",
    "set-up": "{setup}",
    "of it, filling caches": "{filling}",
    "an epoch": "{protocol[micro_batches_per_epoch]} micro-batches, {protocol[updates_per_epoch]} updates",
    "epochs begun": "{protocol[epochs]}",
    "fill-ups an epoch": "{protocol[fill_ups_per_epoch]}",
    "total batch (gbsz)": "{protocol[total_batch]}",
    "seconds a step on the bar": "{protocol[bar_seconds_per_step]:.4g}",
    "seconds a step, elapsed": "{protocol[elapsed_seconds_per_step]:.4g}",
    "IPS by the formula": "{protocol[ips_by_the_bar]:.4g}",
    "IPS, elapsed": "{protocol[ips_by_elapsed_time]:.4g}",
    "IPS, images counted": "{protocol[images_per_second_and_device_counted]:.4g}",
    "loss, last micro-batch": "{target[found]:.4f} ({reached} {target[below]:g})",
    "loss, last update": "{loss[last]:.4f}",
    "loss, fixed timesteps": "{loss[fixed_before]:.4f} to {loss[fixed_after]:.4f}",
}
"""The lines of the table, each of what a row says and of `_words`; a line is empty where a row says nothing of it."""


@dataclass(frozen=True, slots=True)
class Context:
    """What all rows share. flops: of one sample by the size of its picture; empty where they were not counted. peak:
    FLOP/s of one device; None where none is on record. target: a loss to be below; None without one."""

    processes: int
    device: str
    is_gpu: bool
    warm_up: int
    flops: Mapping[Size, int]
    peak: float | None
    target: float | None


def row(measured: Measured, context: Context, changes: Sequence[str]) -> Row:
    """A row as JSON. changes: settings that it has and the recipe has not."""
    steps = measured.steps
    timed = steps[min(context.warm_up, len(steps) - 1) :]
    return {
        "name": measured.name,
        "changes": list(changes),
        "steps": len(steps),
        "timed_steps": len(timed),
        **_speed(timed, context),
        "peak_memory_bytes": measured.memory,
        "loader_cpu_seconds": measured.loader_cpu_seconds,
        "setup_seconds": measured.setup_seconds,
        "cache_seconds": measured.cache_seconds,
        **_arithmetic(timed, context),
        "protocol": _protocol(measured, context),
        "loss": {
            "first": steps[0].loss,
            "last": steps[-1].loss,
            "last_micro_batch": steps[-1].last_micro_loss,
            "fixed_before": measured.fixed_loss[0],
            "fixed_after": measured.fixed_loss[1],
            "fixed_on": "held-out pictures" if measured.watched_are_held else "trained pictures",
        },
        "target": _target(steps, context),
        "step_seconds": [step.seconds for step in steps],
        "step_samples": [step.processed for step in steps],
        "step_loss": [step.loss for step in steps],
    }


def table(document: Mapping[str, Any]) -> list[str]:
    """The page, line by line: a column for each row of the document."""
    rows: list[Row] = document["rows"]
    lines = [f"mezzotint bench {document['recipe']}", f"{document['processes']} x {document['device']}", ""]
    lines += _columns("", [r["name"] for r in rows])
    for title, form in _LINES.items():
        cells = [_cell(form, r | _words(r)) for r in rows]
        if any(cells):
            lines += _columns(title, cells)
    lines += [f"{r['name']}: {', '.join(r['changes'])}" for r in rows if r["changes"]]
    return [*lines, "", *_remarks(document)]


def _cell(form: str, values: Row) -> str:
    try:
        return form.format_map(values)
    except (TypeError, KeyError):  # null, or not said
        return ""


def _words(r: Row) -> Row:
    """What of a row is shown in other units, or in words; None for nothing."""
    blocks, flops, speed = r["images_per_second_in_blocks"], r["flops_per_image"], r["flops_per_second"]
    utilisation = "" if speed is None else "no peak on record"
    if r["mfu"] is not None:
        utilisation = f"{100 * r['mfu']:.3g} %"
    return {
        "spread": f"{blocks['slowest']:.4g} to {blocks['fastest']:.4g}" if blocks["blocks"] > 1 else "",
        "wait": 100 * r["data_wait_share"],
        "memory": size(r["peak_memory_bytes"]),
        "tera_an_image": None if flops is None else flops / 1e12,
        "tera_a_second": None if speed is None else speed / 1e12,
        "utilisation": utilisation,
        "setup": duration(r["setup_seconds"]),
        "filling": duration(r["cache_seconds"]) if r["cache_seconds"] else "",
        "reached": r["target"] and ("below" if r["target"]["reached"] else "not below"),
    }


def _speed(timed: Sequence[Step], context: Context) -> Row:
    seconds = sum(step.seconds for step in timed)
    processed, distinct = sum(step.processed for step in timed), sum(step.distinct for step in timed)
    cpu = sum(step.cpu_seconds for step in timed)
    each = sorted(step.seconds for step in timed)
    figures: Row = {
        "images_per_second": {"processed": processed / seconds, "distinct": distinct / seconds},
        "images_per_second_and_device": processed / seconds / context.processes,
        "images_per_second_in_blocks": _blocks(timed),
        "seconds_per_step": {
            "median": statistics.median(each),
            "fastest": each[0],
            "slowest": each[-1],
            "mean": seconds / len(timed),
        },
        "data_wait_share": sum(step.wait_seconds for step in timed) / seconds,
        "cpu_seconds_per_step": cpu / len(timed),
        "images_per_cpu_second": processed / cpu if cpu else None,
    }
    return figures | ({"gpu_seconds_per_step": seconds * context.processes / len(timed)} if context.is_gpu else {})


def _blocks(timed: Sequence[Step]) -> Row:
    """Images a second of blocks of steps: how far a repetition may differ. A last block of fewer steps is left out
    where there is a whole one."""
    cut = [timed[i : i + _BLOCK] for i in range(0, len(timed), _BLOCK)]
    whole = [block for block in cut if len(block) == _BLOCK] or cut
    speeds = sorted(sum(s.processed for s in block) / sum(s.seconds for s in block) for block in whole)
    return {"blocks": len(speeds), "slowest": speeds[0], "median": statistics.median(speeds), "fastest": speeds[-1]}


def _arithmetic(timed: Sequence[Step], context: Context) -> Row:
    if not context.flops:
        return {"flops_per_image": None, "flops_per_second": None, "peak_flops_per_second": None, "mfu": None}
    total = sum(count * context.flops[place] for step in timed for place, count in step.sizes.items())
    speed = total / sum(step.seconds for step in timed) / context.processes
    return {
        "flops_per_image": total / sum(step.processed for step in timed),
        "flops_per_second": speed,
        "peak_flops_per_second": context.peak,
        "mfu": None if context.peak is None else speed / context.peak,
    }


def _protocol(measured: Measured, context: Context) -> Row | None:
    """The published readings, where all pictures have one size. They need the step at which they are read."""
    data = measured.recipe.data
    if data.buckets.shape != "square" or data.remainder == "drop" or data.repeats != (1.0,):
        return None
    protocol = Protocol.of(
        measured.pictures, data.batch_size, measured.recipe.optim.accumulation, context.processes, len(measured.steps),
        fills=data.remainder == "fill",
    )  # fmt: skip
    seconds = [step.seconds for step in measured.steps]
    read_at = min(READ_AT, len(seconds))
    at = bar_seconds(seconds[:read_at])
    elapsed = sum(seconds) / len(seconds)
    return {
        "pictures": measured.pictures,
        "per_device": protocol.per_device,
        "accumulation": measured.recipe.optim.accumulation,
        "total_batch": protocol.total_batch,
        "micro_batches_per_epoch": protocol.micro_batches,
        "updates_per_epoch": protocol.updates,
        "epochs": protocol.epochs,
        "fill_ups_per_epoch": protocol.fill_ups,
        "images_of_the_run": protocol.images,
        "read_at_step": read_at,
        "bar_seconds_per_step": at,
        "elapsed_seconds_per_step": elapsed,
        "ips_by_the_bar": ips(protocol.total_batch, at, context.processes),
        "ips_by_elapsed_time": ips(protocol.total_batch, elapsed, context.processes),
        "images_per_second_and_device_counted": sum(s.processed for s in measured.steps)
        / sum(seconds)
        / context.processes,
    }


def _target(steps: Sequence[Step], context: Context) -> Row | None:
    if context.target is None:
        return None
    loss = steps[-1].last_micro_loss
    return {"below": context.target, "after_step": len(steps), "found": loss, "reached": loss < context.target}


def _columns(title: str, cells: Iterable[str]) -> list[str]:
    return [f"{title:<27}{''.join(f'{cell:<34}' for cell in cells)}".rstrip()]


def _remarks(document: Mapping[str, Any]) -> list[str]:
    rows: list[Row] = document["rows"]
    remarks = [
        f"IPS by the formula is gbsz / seconds / devices, with the seconds that a smoothed bar shows at step "
        f"{r['protocol']['read_at_step']}; it takes every update for a full one"
        for r in rows
        if r["protocol"]
    ][:1]
    if any(r["target"] for r in rows):
        remarks.append(f"loss, last micro-batch: of process 0, as the protocol reads its target; {_SAYS_NOTHING}")
    if any(r["mfu"] is not None for r in rows):
        remarks.append(f"MFU: arithmetic of the trained networks over the {SOURCE}")
    remarks.append(f"loss, fixed timesteps: before and after, on {rows[0]['loss']['fixed_on']}")
    if any(", round " in r["name"] for r in rows):
        remarks.append("rows ran in turn: differences within the spread of blocks, or of a row's rounds, mean nothing")
    elif len(rows) > 1:
        remarks.append(
            "rows ran one after the other: differences within the spread of blocks mean nothing, and a machine that "
            "slows down favours the first; --rounds=2 measures them in turn"
        )
    return remarks
