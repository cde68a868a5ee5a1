"""What `bench` shows: one JSON document, and a table that is read off it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mezzotint.recipe.counting import duration, size
from mezzotint.shapes import Size
from mezzotint.tasks.bench._flops import SOURCE
from mezzotint.tasks.bench._protocol import READ_AT, Protocol, bar_seconds, ips
from mezzotint.tasks.bench._run import BLOCK, Measured, Step

_SAYS_NOTHING = "one micro-batch at timesteps of its own says nothing about learning; see the two lines below"

Row = dict[str, Any]
_LINES = {
    "steps, of them timed": "{steps}, {timed_steps}",
    "times as fast": "{faster}",
    "images/s, processed": "{images_per_second[processed]:.4g}",
    "images/s, distinct": "{images_per_second[distinct]:.4g}",
    "images/s and device": "{images_per_second_and_device:.4g}",
    "images/s, blocks of 10": "{spread}",
    "seconds a step, median": "{seconds_per_step[median]:.4g}",
    "GPU seconds a step": "{gpu_seconds_per_step:.4g}",
    "CPU seconds a step": "{cpu_seconds_per_step:.4g}",
    "images a CPU second": "{images_per_cpu_second:.4g}",
    "waiting for data": "{wait:.3g} %",
    "peak memory": "{memory}",
    "TFLOP an image": "{tera_an_image:.4g}",
    "TFLOP/s and device": "{tera_a_second:.4g}",
    "MFU": "{utilisation}",
    "set-up": "{setup}",
    "of it, filling caches": "{filling}",
    "compiled after warm-up": "{compiled}",
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

_BY_CPU = ("steps, of them timed", "times as fast", "CPU seconds a step", "images a CPU second")
"""Where no GPU is, these lead: wall time there says as much of what else the machine does."""


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
        "recompiles": measured.recompiles,
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
        "step_cpu_seconds": [step.cpu_seconds for step in steps],
        "step_samples": [step.processed for step in steps],
        "step_loss": [step.loss for step in steps],
    }


def compared(rows: Sequence[Row], ends: Sequence[int], *, by_cpu: bool) -> list[Row]:
    """The rows, each with how many times as fast it is as the stock loop, or else as the first: the ratio of each round
    of blocks, their median and how far they lie apart. ends: after how many steps a block ends, the warm-up first.
    by_cpu: whether CPU seconds are compared."""
    base = next((r for r in rows if r["name"] == "stock"), rows[0])
    whole = []
    for r in rows:
        ratios = {}
        for meter in ("step_seconds", "step_cpu_seconds"):
            mine, theirs = (
                [sum(one[meter][a:b]) / max(1, sum(one["step_samples"][a:b])) for a, b in pairwise([*ends, None])]
                for one in (r, base)
            )
            each = sorted(t / m for m, t in zip(mine, theirs, strict=True) if m and t)
            if each and r is not base:
                low, *_, high = [each[0], *each, each[-1]]
                ratios[meter] = {"median": statistics.median(each), "lowest": low, "highest": high, "rounds": len(each)}
        of = {"row": base["name"], "by": "CPU seconds" if by_cpu else "seconds", "seconds": ratios.get("step_seconds"),
              "cpu_seconds": ratios.get("step_cpu_seconds")}  # fmt: skip
        whole.append(r | {"against": of if ratios else None})
    return whole


def _faster(against: Row | None) -> str:
    if against is None:
        return ""
    ratio = against["cpu_seconds" if against["by"] == "CPU seconds" else "seconds"]
    if ratio is None:
        return ""
    return f"{ratio['median']:.3g} ({ratio['lowest']:.3g} to {ratio['highest']:.3g}) of {against['row']}"


def table(document: Mapping[str, Any]) -> list[str]:
    """The page, line by line: a column for each row of the document."""
    rows: list[Row] = document["rows"]
    lines = [f"mezzotint bench {document['recipe']}", f"{document['processes']} x {document['device']}", ""]
    lines += _columns("", [r["name"] for r in rows])
    first = _BY_CPU if document["device"] == "CPU" else ()
    for title, form in sorted(_LINES.items(), key=lambda line: line[0] not in first):
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
        "compiled": f"{r['recompiles']} graphs" if r["recompiles"] else "",
        "faster": _faster(r.get("against")),
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
    cut = [timed[i : i + BLOCK] for i in range(0, len(timed), BLOCK)]
    whole = [block for block in cut if len(block) == BLOCK] or cut
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
    ratios = [r["against"] for r in rows if r.get("against")]
    if ratios:
        rounds = max(ratio["seconds"]["rounds"] for ratio in ratios if ratio["seconds"])
        remarks.append(
            f"times as fast: by {ratios[0]['by']} an image; rows ran one after the other, and this is the median of "
            f"the ratios of {rounds} blocks of steps, with the lowest and the highest; where 1 lies between them it "
            "means nothing"
        )
    return remarks
