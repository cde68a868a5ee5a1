"""What `bench` shows: one JSON document, and a table that is read off it."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    for title, tell in _LINES.items():
        cells = [tell(r) for r in rows]
        if any(cells):
            lines += _columns(title, cells)
    for r in rows:
        lines += [f"{r['name']}: {', '.join(r['changes'])}"] if r["changes"] else []
    return [*lines, "", *_remarks(document)]


def _speed(timed: Sequence[Step], context: Context) -> Row:
    seconds = sum(step.seconds for step in timed)
    processed, distinct = sum(step.processed for step in timed), sum(step.distinct for step in timed)
    cpu = sum(step.cpu_seconds for step in timed)
    each = sorted(step.seconds for step in timed)
    found: Row = {
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
    if context.is_gpu:
        found["gpu_seconds_per_step"] = seconds * context.processes / len(timed)
    return found


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
    told = Protocol(
        pictures=measured.pictures,
        batch=data.batch_size,
        accumulation=measured.recipe.optim.accumulation,
        processes=context.processes,
        steps=len(measured.steps),
        fills=data.remainder == "fill",
    )
    seconds = [step.seconds for step in measured.steps]
    read_at = min(READ_AT, len(seconds))
    at = bar_seconds(seconds[:read_at])
    elapsed = sum(seconds) / len(seconds)
    return {
        "pictures": told.pictures,
        "per_device": told.per_device,
        "accumulation": told.accumulation,
        "total_batch": told.total_batch,
        "micro_batches_per_epoch": told.micro_batches,
        "updates_per_epoch": told.updates,
        "epochs": told.epochs,
        "fill_ups_per_epoch": told.fill_ups,
        "images_of_the_run": told.images,
        "read_at_step": read_at,
        "bar_seconds_per_step": at,
        "elapsed_seconds_per_step": elapsed,
        "ips_by_the_bar": ips(told.total_batch, at, context.processes),
        "ips_by_elapsed_time": ips(told.total_batch, elapsed, context.processes),
        "images_per_second_and_device_counted": sum(s.processed for s in measured.steps)
        / sum(seconds)
        / context.processes,
    }


def _target(steps: Sequence[Step], context: Context) -> Row | None:
    if context.target is None:
        return None
    found = steps[-1].last_micro_loss
    return {"below": context.target, "after_step": len(steps), "found": found, "reached": found < context.target}


def _images(r: Row) -> str:
    return f"{r['images_per_second']['processed']:.4g}"


def _spread(r: Row) -> str:
    blocks = r["images_per_second_in_blocks"]
    return f"{blocks['slowest']:.4g} to {blocks['fastest']:.4g}" if blocks["blocks"] > 1 else ""


def _dealt(r: Row) -> str:
    p = r["protocol"]
    if p is None:
        return ""
    return f"{p['micro_batches_per_epoch']} micro-batches, {p['updates_per_epoch']} updates"


def _of_protocol(name: str, form: str = "{:.4g}") -> Callable[[Row], str]:
    return lambda r: form.format(r["protocol"][name]) if r["protocol"] else ""


def _mfu(r: Row) -> str:
    if r["mfu"] is not None:
        return f"{100 * r['mfu']:.3g} %"
    return "" if r["flops_per_second"] is None else "no peak on record"


def _reached(r: Row) -> str:
    if r["target"] is None:
        return ""
    t = r["target"]
    return f"{t['found']:.4f} ({'below' if t['reached'] else 'not below'} {t['below']:g})"


def _fixed(r: Row) -> str:
    return f"{r['loss']['fixed_before']:.4f} to {r['loss']['fixed_after']:.4f}"


_LINES: dict[str, Callable[[Row], str]] = {
    "steps, of them timed": lambda r: f"{r['steps']}, {r['timed_steps']}",
    "images/s, processed": _images,
    "images/s, distinct": lambda r: f"{r['images_per_second']['distinct']:.4g}",
    "images/s and device": lambda r: f"{r['images_per_second_and_device']:.4g}",
    "images/s, blocks of 10": _spread,
    "seconds a step, median": lambda r: f"{r['seconds_per_step']['median']:.4g}",
    "GPU seconds a step": lambda r: f"{r['gpu_seconds_per_step']:.4g}" if "gpu_seconds_per_step" in r else "",
    "CPU seconds a step": lambda r: f"{r['cpu_seconds_per_step']:.4g}",
    "waiting for data": lambda r: f"{100 * r['data_wait_share']:.3g} %",
    "peak memory": lambda r: size(r["peak_memory_bytes"]),
    "TFLOP an image": lambda r: "" if r["flops_per_image"] is None else f"{r['flops_per_image'] / 1e12:.4g}",
    "TFLOP/s and device": lambda r: "" if r["flops_per_second"] is None else f"{r['flops_per_second'] / 1e12:.4g}",
    "MFU": _mfu,
    "set-up": lambda r: duration(r["setup_seconds"]),
    "of it, filling caches": lambda r: duration(r["cache_seconds"]) if r["cache_seconds"] else "",
    "an epoch": _dealt,
    "epochs begun": _of_protocol("epochs", "{}"),
    "fill-ups an epoch": _of_protocol("fill_ups_per_epoch", "{}"),
    "total batch (gbsz)": _of_protocol("total_batch", "{}"),
    "seconds a step on the bar": _of_protocol("bar_seconds_per_step"),
    "seconds a step, elapsed": _of_protocol("elapsed_seconds_per_step"),
    "IPS by the formula": _of_protocol("ips_by_the_bar"),
    "IPS, elapsed": _of_protocol("ips_by_elapsed_time"),
    "IPS, images counted": _of_protocol("images_per_second_and_device_counted"),
    "loss, last micro-batch": _reached,
    "loss, last update": lambda r: f"{r['loss']['last']:.4f}",
    "loss, fixed timesteps": _fixed,
}


def _columns(title: str, cells: Iterable[str]) -> list[str]:
    return [f"{title:<27}{''.join(f'{cell:<34}' for cell in cells)}".rstrip()]


def _remarks(document: Mapping[str, Any]) -> list[str]:
    rows: list[Row] = document["rows"]
    found = []
    if any(r["protocol"] for r in rows):
        p = next(r["protocol"] for r in rows if r["protocol"])
        found.append(
            f"IPS by the formula is gbsz / seconds / devices, with the seconds that a smoothed bar shows at step "
            f"{p['read_at_step']}; it takes every update for a full one"
        )
    if any(r["target"] for r in rows):
        found.append(f"loss, last micro-batch: of process 0, as the protocol reads its target; {_SAYS_NOTHING}")
    if any(r["mfu"] is not None for r in rows):
        found.append(f"MFU: arithmetic of the trained networks over the {SOURCE}")
    found.append(f"loss, fixed timesteps: before and after, on {rows[0]['loss']['fixed_on']}")
    if any(", round " in r["name"] for r in rows):
        found.append("rows ran in turn: differences within the spread of blocks, or of a row's rounds, mean nothing")
    elif len(rows) > 1:
        found.append(
            "rows ran one after the other: differences within the spread of blocks mean nothing, and a machine that "
            "slows down favours the first; --rounds=2 measures them in turn"
        )
    return found
