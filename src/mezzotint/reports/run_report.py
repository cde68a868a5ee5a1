"""Summary of a run in one plot and a few lines: logs/loss.png and logs/report.txt, from the run folder only."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from mezzotint import durable
from mezzotint.reports.curves import Metrics, curves_of, mean_loss_of, read_metrics
from mezzotint.run_folder import RunFolder
from mezzotint.settings.counting import format_duration


def write_run_report(folder: RunFolder) -> tuple[Path, ...]:
    """Writes logs/loss.png (if a step was logged) and logs/report.txt; returns the paths written.

    Raises StorageError if a file cannot be written.
    """
    # imported here: matplotlib takes half a second, which would delay every start
    from mezzotint.reports.plots import plot_loss

    metrics = read_metrics(folder)
    written = []
    with durable.storage_errors(folder.logs):
        folder.logs.mkdir(parents=True, exist_ok=True)
        if metrics.steps:
            written.append(folder.logs / "loss.png")
            durable.write_file(written[-1], plot_loss(curves_of(metrics), title=folder.path.name))
        written.append(folder.logs / "report.txt")
        durable.write_file(written[-1], "\n".join(summarize_run(folder)) + "\n")
    return tuple(written)


def summarize_run(folder: RunFolder) -> tuple[str, ...]:
    """The lines of logs/report.txt: what the run trained, as described at its last start; then steps and time, loss,
    held-out loss, drift, bad steps, checkpoints, exports, previews.

    Steps, samples and time count every step of the run, logged or not; the loss counts logged steps only.
    """
    metrics = read_metrics(folder)
    events = folder.events()
    starts = [event for event in events if event.get("event") == "started"]
    description = starts[-1].get("description", ()) if starts else ()
    lines = [f"run {folder.path.name}", *(f"{title:<13} {text}" for title, text in description)]
    lines += [f"{'note':<13} {note}" for note in (starts[-1].get("notes", ()) if starts else ())]
    lines += _training_lines(metrics)
    if starts:
        lines.append(f"attempts      {len(starts)}")
    bad = durable.read_own_lines(folder.bad_steps)
    lines.append(f"bad steps     {len(bad)}" + (f", the last at step {bad[-1].get('step')}" if bad else ""))
    lines += [
        f"slow steps    up to step {event.get('step')}: {event.get('cause')}"
        for event in events
        if event.get("event") == "slow-steps"
    ]
    for title, parent, pattern in (
        ("checkpoints", folder.checkpoints, "step-*"),
        ("exports", folder.exports, "[!.]*"),
        ("previews", folder.samples, "grid.png"),
    ):
        names = sorted(path.name for path in parent.glob(pattern) if path.suffix != ".md") if parent.is_dir() else []
        names = [f"{name}{_leak_of(name, metrics)}" for name in names]
        lines.append(f"{title:<13} {f'{parent.name}/' + ', '.join(names) if names else 'none'}")
    return tuple(lines)


def _drift_line(metrics: Metrics) -> list[str]:
    """The last measurement of `run.drift`."""
    if not metrics.drift:
        return []
    last = metrics.drift[-1]
    groups = {tag: value for tag, value in last.items() if tag != "step" and not tag.endswith("_shadow")}
    numbers = [f"{tag.removeprefix('drift/')} {float(v):.4f}" for tag, v in groups.items() if "_at/" not in tag]
    return [f"drift         {', '.join(numbers)} at step {last['step']}"]


def _leak_of(name: str, metrics: Metrics) -> str:
    """The leak measured last before a checkpoint or an export was written, in brackets; "" if there is none."""
    step, tag = re.search(r"(\d{6,})", name), "drift/leak_shadow" if "ema" in name else "drift/leak"
    measured = [line[tag] for line in metrics.drift if tag in line and step and line["step"] <= int(step[1])]
    return f" (leak {float(measured[-1]):.2f})" if measured else ""


def _training_lines(metrics: Metrics) -> list[str]:
    if not metrics.steps:
        return ["steps         none logged"]
    first, last = metrics.steps[0], metrics.steps[-1]
    curve = mean_loss_of(metrics)
    counted, samples, seconds = _totals(metrics)
    note = "" if counted == last["step"] else f", {counted:,} of them counted below"
    lines = [
        f"steps         {last['step']:,}, the last in epoch {last.get('epoch', 0) + 1:,}{note}",
        f"samples       {samples:,.0f} in {format_duration(seconds)} of training, "
        f"{samples / max(seconds, 1e-9):.3g} images/s",
        f"loss          {float(first['loss']):.4f} at step {first['step']}, smoothed {curve[-1]:.4f} at the end"
        + ("" if len(metrics.steps) == last["step"] else f", of {len(metrics.steps):,} logged steps"),
    ]
    if metrics.held_out:
        begin, end = metrics.held_out[0], metrics.held_out[-1]
        at = [f"{float(line.get(metrics.tag, 'nan')):.4f} at step {line['step']}" for line in (begin, end)]
        lowest = min(metrics.held_out, key=lambda line: np.nan_to_num(float(line.get(metrics.tag, "nan")), nan=np.inf))
        if lowest["step"] not in (begin["step"], end["step"]):
            at.append(f"lowest {float(lowest[metrics.tag]):.4f} at step {lowest['step']}")
        averaged = end.get(f"{metrics.tag}_shadow")
        average = f", averaged weights {float(averaged):.4f}" if averaged is not None else ""
        lines.append(f"held-out loss {', '.join(at)}{average}")
    return lines + _drift_line(metrics)


def _totals(metrics: Metrics) -> tuple[int, float, float]:
    """Steps, samples and seconds of training, summed over all steps. Lines without `steps_since` count their own step
    only."""
    steps, samples, seconds = 0, 0.0, 0.0
    for line in metrics.steps:
        of_step, speed = float(line.get("samples", 0)), float(line.get("images_per_s", "inf"))
        steps += int(line.get("steps_since", 1))
        samples += float(line.get("samples_since", of_step))
        seconds += float(line.get("seconds_since", of_step / max(speed, 1e-9)))
    return steps, samples, seconds
