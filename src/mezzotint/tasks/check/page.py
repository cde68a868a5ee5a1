"""What `check` prints: text, 100 columns wide, or one JSON document."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from mezzotint.data.files.listing import is_remote
from mezzotint.reports import batch_report
from mezzotint.settings.advice import suggest_less_memory
from mezzotint.settings.counting import format_bytes, format_count, format_duration
from mezzotint.settings.optimizers.base import Optimizer
from mezzotint.settings.reading.paths import settings
from mezzotint.settings.reading.read import COMMAND_LINE, Reading
from mezzotint.settings.recipe import Recipe, plain_values
from mezzotint.tasks.check._checked import Checked
from mezzotint.tasks.check.estimates import BucketRow, Disk
from mezzotint.tasks.check.memory import Memory
from mezzotint.tasks.check.plans import format_settings

WIDTH = 100
NOT_COUNTED = (
    "not counted: workspaces of kernels, prefetched batches, frozen encoders while they run, previews, communication "
    "buffers, fragmentation. Resuming reads a checkpoint into host memory. Exporting holds one tensor at a time, and "
    "in host memory the parts that are read again for it, such as the frozen ones of a single-file model"
)


def page(checked: Checked, *, every_setting: bool = False) -> list[str]:
    """The lines of the page."""
    sections = {
        "recipe": _recipe(checked, every_setting),
        "files": _files(checked),
        **{title: iter([text]) for title, text in checked.description},
        "by bucket": _buckets(checked),
        "memory": _memory(checked),
        "fit": _fit(checked),
        "disk": _disk(checked),
        "time": _time(checked),
        "notes": checked.notes,
    }
    lines = [f"mezzotint check {checked.reading.name}"]
    for title, section in sections.items():
        for number, line in enumerate(section):
            margin = f"{title if number == 0 else '':<12}"
            # settings stay on one line, with their origin
            lines += [margin + line] if title == "recipe" else _wrap(margin, line)
    return lines + ([] if checked.problems else _verdict(checked))


def _verdict(checked: Checked) -> list[str]:
    if checked.memory is None or checked.free_memory is None:
        return []
    peak, free = (
        format_bytes(checked.memory.peak),
        f"{format_bytes(checked.free_memory)} that are free on {checked.device}",
    )
    if checked.fits:
        return _wrap("", f"fits: a step's peak is {peak} of the {free}")
    ways = _wrap("", f"would fit with {'; or with '.join(map(str, checked.ways))}") if checked.ways else []
    verdict = f"does not fit: a step's peak is {peak}, more than the {free}; {suggest_less_memory(checked.recipe)}"
    return ways + _wrap("", verdict)


def _wrap(margin: str, line: str) -> list[str]:
    indent = " " * (len(margin) + 2 + len(line) - len(line.lstrip()))
    return textwrap.wrap(
        margin + line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False,
        drop_whitespace=True, replace_whitespace=False,
    )  # fmt: skip


def _recipe(checked: Checked, every_setting: bool) -> Iterator[str]:
    origins = origin_of_settings(checked.reading)
    values = values_of(checked.recipe)
    shown_values = values if every_setting else {path: values[path] for path in values if path in origins}
    path_width = max((len(path) for path in shown_values), default=0)
    value_width = min(
        max((len(_value(value)) for value in shown_values.values()), default=0), WIDTH - 12 - path_width - 18
    )
    yield f"{len(origins)} settings given, {len(values) - len(origins)} at their defaults" + (
        "" if every_setting else " (--all lists them)"
    )
    for path, value in shown_values.items():
        origin = origins.get(path, "default")
        yield f"  {path:<{path_width}}  {_value(value):<{value_width}}  {origin}"


def values_of(recipe: Recipe) -> dict[str, Any]:
    """Every setting by its path, as JSON, in the order of the sections, without those of a kind that is not chosen."""
    tree, values = plain_values(recipe), {}
    for setting in settings():
        *sections, last = setting.path.split(".")
        section = reduce(getitem, sections, tree)
        if last in section:
            values[setting.path] = section[last]
    return values


def origin_of_settings(reading: Reading) -> dict[str, str]:
    """Where each setting that was given comes from: `line 5` or `command line`. A section given on the command line
    counts for those of its settings that are not the default."""
    values, origins = values_of(reading.recipe), {}
    defaults = {setting.path: setting.default for setting in settings()}
    for path, value in values.items():
        inside = [origin for written, origin in reading.origin.items() if f"{written}.".startswith(f"{path}.")]
        around = [
            origin
            for written, origin in reading.origin.items()
            if origin == COMMAND_LINE and path.startswith(f"{written}.") and value != defaults[path]
        ]
        if inside or around:
            origins[path] = COMMAND_LINE if COMMAND_LINE in (*inside, *around) else inside[0]
    return origins


def _value(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_value(inner)}" for name, inner in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _files(checked: Checked) -> Iterator[str]:
    rows = [
        [
            file.name,
            file.file or ("no weights" if file.part else ""),
            f"{file.parameters:,}" if file.parameters else "",
            format_bytes(file.bytes),
            " ".join(file.types),
        ]
        for file in checked.files
    ]
    yield from _table(rows, "<<>><", "")
    for path in checked.recipe.data.paths:
        if not is_remote(path) and not path.exists():
            yield f"{path} does not exist"


def _buckets(checked: Checked) -> Iterator[str]:
    if checked.dataset is None:
        return
    clips = checked.recipe.data.has_clips
    head = ["w×h×frames" if clips else "bucket", "clips" if clips else "images", "visits", "batches", "left over"]
    yield from _table([[*head, "activations"], *(_bucket_row(checked, row) for row in checked.buckets)], "<>>><>", "")
    if checked.names:
        yield from _table([list(batch_report.HEAD), *map(list, checked.names)], "<<>>>>", "")


def _bucket_row(checked: Checked, row: BucketRow) -> list[str]:
    texts = ((row.short, "a batch of {}"), (row.repeated, "{} seen again"), (row.left_out, "{} left out"))
    rest = next((text.format(count) for count, text in texts if count), "-")
    by_bucket = checked.memory.activations if checked.memory else {}
    measurement = by_bucket.get(row.bucket)
    # only the buckets that may need most are measured
    activations = (
        f"{format_bytes(measurement.bytes)} for {measurement.samples}"
        if measurement
        else "less"
        if by_bucket and row.batches
        else "-"
    )
    return [str(row.bucket), f"{row.images:,}", f"{row.visits:,}", f"{row.batches:,}", rest, activations]


def _memory(checked: Checked) -> Iterator[str]:
    memory = checked.memory
    if memory is None:
        return
    many = f", one of {checked.processes} processes" if checked.processes > 1 else ""
    yield f"of {checked.device}{many}, at the peak of a step"
    rows = [[name, format_bytes(count), note] for name, count, note in _memory_rows(checked, memory)]
    yield from _table(rows, "<><")
    yield f"  {NOT_COUNTED}"


def _fit(checked: Checked) -> Iterator[str]:
    fit = checked.fit
    if fit is None:
        return
    plan, before = fit.plan, fit.before
    yield f"{fit.card} fits with {format_settings(plan.settings) or 'the recipe as it is'}"
    for reason in fit.reasons:
        yield f"  {format_settings(reason.settings)}: {reason.text}"
    rows = [
        ["", "as it is", "then"],
        ["of the card", format_bytes(before.needed), format_bytes(plan.needed)],
        ["of host memory", format_bytes(before.memory.held_on_host), format_bytes(plan.memory.held_on_host)],
        ["FLOPs of a step", f"{before.flops:.3g}", f"{plan.flops:.3g}"],
        ["between host and card", format_bytes(before.moved), format_bytes(plan.moved)],
        ["passes of a step", str(before.passes), str(plan.passes)],
    ]
    yield from _table(rows, "<>>")
    yield "  computed, not measured; a twentieth of the card stays free"
    if fit.encoders:
        keep = "data.cache.latents=true and data.cache.text=true keep them off it"
        yield f"  frozen encoders take {format_bytes(fit.encoders)} of the card: {keep}"
    yield from (f"  {sentence}" for sentence in fit.left_out)
    if fit.card.out is not None and not checked.problems:  # otherwise it is not written
        yield f"  recipe: {fit.card.out}"


_EXACT = "of these, counted tensor by tensor; activations are an estimate"


def _memory_rows(checked: Checked, memory: Memory) -> Iterator[tuple[str, int, str]]:
    run, on_host_note = checked.recipe.run, "in host memory, not in the total"
    loaded = "all loaded parts"
    if memory.on_host:
        loaded += f"; of the {len(memory.blocks)} blocks those that are on the device at once"
    yield "weights", memory.weights, loaded
    if memory.masters:
        note = "this process's shard, float32" if run.runtime == "fsdp" else f"float32, with weights in {run.precision}"
        yield "masters", memory.masters, on_host_note if memory.update_is_apart else note
    overlap = "" if memory.keeps_gradients else "allocated while activations are freed"
    yield "gradients", memory.gradients, on_host_note if memory.update_is_apart else overlap
    yield "optimizer", memory.optimizer, on_host_note if memory.update_is_apart else _describe_state(checked.recipe)
    if memory.ema:
        yield "EMA", memory.ema, on_host_note if memory.ema_is_apart or memory.update_is_apart else ""
    if memory.on_host:
        yield "host", memory.on_host, "host memory for what is offloaded (run.offload)"
    if memory.activations:
        bucket, worst = max(memory.activations.items(), key=lambda item: item[1].bytes)
        again = f", {format_bytes(worst.again)} of it to recompute a block" if worst.again else ""
        note = f"of the largest bucket, {bucket}, {format_count(worst.samples, 'sample')} at once{again}"
        yield "activations", worst.bytes, note
    yield "update", memory.update, _describe_update(checked.recipe)
    yield "loading", memory.loading, "peak before the first step: without gradients and activations"
    free = f"{format_bytes(checked.free_memory)} are free" if checked.free_memory is not None else ""
    if memory.copy:
        yield "saving", memory.copy, "host memory while a checkpoint is written, not in the total"
    if memory.activations:
        yield "exact", memory.steady, _EXACT
    yield "total", memory.peak, free if memory.activations else f"without activations; {free}"


def _rules(recipe: Recipe) -> list[Optimizer]:
    return [recipe.optim.part_optimizer.get(part, recipe.optim.optimizer) for part in recipe.model.train]


def _describe_update(recipe: Recipe) -> str:
    notes = ["temporary tensors of the optimizer step"]
    notes += [f"of {rule.label} an estimate" for rule in _rules(recipe) if rule.is_of_package]
    return "; ".join(dict.fromkeys(notes))


def _describe_state(recipe: Recipe) -> str:
    rules = _rules(recipe)
    notes = [rule.state_text for rule in rules]
    notes += [f"each step of {rule.label} synchronizes with the device" for rule in rules if rule.is_of_package]
    return "; ".join(dict.fromkeys(notes))


def _disk(checked: Checked) -> Iterator[str]:
    disk = checked.disk
    if disk is None:
        return
    yield f"{format_bytes(disk.free)} free at {disk.folder}"
    yield from _table(list(_disk_rows(checked, disk)), "<><")
    if not disk.one_disk and checked.caches:
        yield f"{format_bytes(disk.free_cache)} free at {disk.cache_folder}, the cache's disk"


def _disk_rows(checked: Checked, disk: Disk) -> Iterator[list[str]]:
    existing = f", {disk.there} exist already" if disk.there else ""
    yield ["a checkpoint", format_bytes(disk.checkpoint), ""]
    yield ["checkpoints", format_bytes(disk.checkpoints), f"{disk.kept} kept, and the one being written{existing}"]
    averaged = "weights and their EMA, " if checked.recipe.optim.ema.rule != "none" else ""
    count = "an unknown number of them" if disk.exports is None else f"{disk.exports} in the run"
    export = checked.recipe.run.export
    of_file = export.single_file_dtype or export.dtype
    types: str = of_file if export.parts == "trained" else export.dtype
    if export.single_file and export.parts != "trained":
        types += f", and one file, {of_file}"
    yield ["an export", format_bytes(disk.export), f"{averaged}{types}; {count}"]
    for need in checked.caches:
        present = "too many to look up" if need.present is None else f"{need.present:,} exist"
        yield [f"{need.kind} cache", format_bytes(need.bytes), f"{format_count(need.entries, 'entry')}, {present}"]


def _time(checked: Checked) -> Iterator[str]:
    dry, length = checked.dry, checked.length
    if dry is None or length is None:
        yield "not measured; --dry runs two real steps"
        return
    yield (
        f"{format_duration(dry.seconds_a_step)} a step on {dry.device} (the first, warming up, "
        f"{format_duration(dry.seconds[0])}), "
        f"{dry.samples_a_second:.3g} images/s; the run {format_duration(dry.seconds_a_step * length.steps)}"
    )
    if dry.memory:
        yield f"peak of the device's memory {format_bytes(dry.memory)}"
    yield "not counted: filling caches, saving, exporting, previews, held-out loss, waiting for other processes"


def _table(rows: list[list[str]], sides: str, indent: str = "  ") -> Iterator[str]:
    """Rows in columns, each as wide as its widest cell. sides: "<" or ">" for each column."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)]
        yield (indent + "  ".join(cells)).rstrip()


def document(checked: Checked) -> dict[str, Any]:
    """Everything as plain values; null where a value is not known."""
    memory, length, dry = checked.memory, checked.length, checked.dry
    return {
        "recipe": {"name": checked.reading.name, "digest": checked.reading.digest,
                   "settings": values_of(checked.recipe), "origin": origin_of_settings(checked.reading)},
        "description": dict(checked.description),
        "files": [_to_json(component) for component in checked.files],
        "parts": [_to_json(part) for part in memory.parts] if memory else None,
        "skipped": _files_of(checked, "skipped"), "left_out": _files_of(checked, "left_out"),
        "buckets": [_to_json(row) | {"bucket": str(row.bucket)} for row in checked.buckets],
        "names": [dict(zip(batch_report.HEAD, row, strict=True)) for row in checked.names],
        "length": _to_json(length) if length else None,
        "memory": _memory_document(checked, memory) if memory else None,
        "fit": _fit_document(checked) if checked.fit else None,
        "caches": [_to_json(need) for need in checked.caches],
        "disk": _to_json(checked.disk) if checked.disk else None,
        "time": _to_json(dry) | {"seconds_a_step": dry.seconds_a_step, "samples_a_second": dry.samples_a_second,
                               "run_seconds": dry.seconds_a_step * length.steps} if dry and length else None,
        "notes": checked.notes,
        "fits": checked.fits,
        "problems": [{"code": error.code, "message": error.message} for error in checked.problems],
    }  # fmt: skip


def _fit_document(checked: Checked) -> dict[str, Any]:
    assert checked.fit is not None
    fit = checked.fit
    names = ("needed", "flops", "moved", "passes")
    return {
        "card": fit.card.room, "host": fit.card.host, "settings": dict(fit.plan.settings),
        "reasons": [{"settings": dict(reason.settings), "text": reason.text} for reason in fit.reasons],
        "changes_results": fit.plan.numbers > 0, "left_out": list(fit.left_out),
    } | {
        name: {key: getattr(plan, key) for key in names} | {"held_on_host": plan.memory.held_on_host}
        for name, plan in (("before", fit.before), ("plan", fit.plan))
    }  # fmt: skip


def _files_of(checked: Checked, kind: str) -> list[list[str]]:
    """[path, reason] of the files that a report lists under `kind`, including image batches joined to video batches."""
    if checked.dataset is None:
        return []
    catalogues = [checked.dataset.catalogue, checked.dataset.catalogue.joined_images]
    reports = [catalogue.report for catalogue in catalogues if catalogue is not None]
    return [list(row) for report in reports for row in getattr(report, kind)]


def _memory_document(checked: Checked, memory: Memory) -> dict[str, Any]:
    names = ("weights", "masters", "gradients", "optimizer", "update", "checkpoint", "copy", "peak", "on_host")
    return {name: getattr(memory, name) for name in names} | {
        "shadow": memory.ema,  # the EMA's name in JSON since the first version
        "shadow_is_apart": memory.ema_is_apart,
        "activations": {
            str(bucket): _to_json(saved) | {"bytes": saved.bytes} for bucket, saved in memory.activations.items()
        },
        "fits_with": [
            dict(way.settings) | {"peak": way.memory.peak, "on_host": way.memory.on_host} for way in checked.ways
        ],
        "not_in_peak": NOT_COUNTED,
        "at_hand": checked.free_memory,
        "processes": checked.processes,
        "device": str(checked.device),
    }


def _to_json(value: Any) -> dict[str, Any]:
    return {name: str(field) if isinstance(field, Path) else field for name, field in asdict(value).items()}
