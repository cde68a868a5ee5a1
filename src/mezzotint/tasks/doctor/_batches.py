"""Findings about batches: how buckets fill, and how evenly each number of processes shares them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mezzotint.data.findings.finding import Finding, Status
from mezzotint.settings.counting import format_count
from mezzotint.settings.recipe import Recipe
from mezzotint.tasks.assemble import Dataset
from mezzotint.tasks.check import estimates

_PROCESSES = (1, 2, 3, 4, 6, 8, 16, 32, 64)


def of_batches(recipe: Recipe, dataset: Dataset, processes: Sequence[int] = ()) -> Iterator[Finding]:
    """Findings about buckets and processes. processes: numbers of processes to report in addition to the usual ones."""
    rows, settings = estimates.bucket_rows(dataset, recipe), recipe.data
    poor = [row for row in rows if row.visits < settings.batch_size]
    rest = {"short": "trained in a smaller batch", "drop": "left out, different ones in each epoch",
            "fill": "filled up with repeated visits", "repeat": "filled up with repeated visits"}  # fmt: skip
    num_left_over = sum(row.rest for row in rows)
    table = [
        (str(row.bucket), f"{row.images:,}", f"{row.visits:,}", f"{row.batches:,}", f"{row.rest:,}",
         f"{row.repeated:,}", f"{row.left_out:,}")
        for row in rows
    ]  # fmt: skip
    fill = f"{len(poor)} with fewer images than data.batch_size={settings.batch_size}" if poor else "each fills a batch"
    rest_of_epoch = f"{rest[settings.remainder]} (data.remainder={settings.remainder})"
    left_over = "no visit is left over"
    if num_left_over:
        left_over = f"{format_count(num_left_over, 'visit')} of the first epoch left over, {rest_of_epoch}"
    status: Status = "look" if poor and len(rows) > 1 else "know"
    if any(row.left_out and not row.batches for row in rows):
        status = "mend"
    advice = {
        "mend": "images of a bucket without a batch are never trained: set data.remainder=short, or lower "
        "data.batch_size",
        "look": "to waste less, use fewer buckets (a larger data.buckets.step) or a smaller data.batch_size",
        "know": "no action needed",
    }[status]
    yield Finding(
        "buckets", status, len(rows),
        f"{format_count(len(rows), 'bucket')}, {fill}; {left_over}",
        advice, (), (("bucket", "images", "visits", "batches", "over", "repeated", "left out"), *table),
    )  # fmt: skip
    yield _of_processes(recipe, dataset, processes)


def _of_processes(recipe: Recipe, dataset: Dataset, processes: Sequence[int]) -> Finding:
    """A finding about numbers of processes. A batch is shared by all processes, so their number does not change it,
    only how evenly it is shared."""
    sizes = np.diff(dataset.timeline.epoch(0).starts)
    epoch, batch_size = dataset.timeline.epoch(0), recipe.data.batch_size
    lines = []
    for count in sorted({*(number for number in _PROCESSES if number <= max(8, batch_size)), *processes}):
        if count > batch_size:
            lines.append((str(count), "cannot run", "", "", "", ""))
            continue
        uneven = int((sizes % count != 0).sum())
        idle = int((-(-sizes // count) * count - sizes).sum())
        work = idle / max(1, idle + int(sizes.sum()))
        lines.append((
            str(count), f"{uneven:,} of {len(sizes):,}", f"{idle:,} ({work:.0%})", f"{int((sizes < count).sum()):,}",
            f"{epoch.left_out:,}", f"{epoch.filled:,}",
        ))  # fmt: skip
    head = ("processes", "uneven batches", "idle places", "batches too small for all", "left out", "repeated")
    return Finding(
        "processes", "know", len(lines),
        f"data.batch_size={batch_size} is shared by all processes; in the first epoch:",
        "use a number of processes that divides data.batch_size; data.remainder=fill or drop makes every batch full",
        (), (head, *lines),
    )  # fmt: skip
