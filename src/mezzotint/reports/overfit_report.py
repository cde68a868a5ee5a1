"""Whether a run overfits its images: logs/overfit.txt, overfit.json and overfit.png, from its metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mezzotint import durable
from mezzotint.reports.curves import OverfitCurves, overfit_curves, read_metrics
from mezzotint.run_folder import RunFolder

RISE = 0.01
"""Relative rise of a loss above its minimum that counts as a rise."""


def write_overfit_report(folder: RunFolder) -> tuple[Path, ...]:
    """Writes the three files if the held-out loss was measured; returns the paths written. Raises StorageError."""
    # imported here: matplotlib takes half a second, which would delay every start
    from mezzotint.reports.plots import plot_overfit

    curves = overfit_curves(read_metrics(folder))
    if curves is None:
        return ()
    facts = compute_facts(curves)
    facts["words"] = write_conclusions(facts)
    with durable.storage_errors(folder.logs):
        folder.logs.mkdir(parents=True, exist_ok=True)
        names = [folder.logs / f"overfit.{ending}" for ending in ("txt", "json", "png")]
        durable.write_file(names[0], "\n".join(lines(folder.path.name, facts)) + "\n")
        durable.write_json(names[1], facts)
        best = facts["best"]["average" if facts["best"]["average"] else "trained"]["step"]
        durable.write_file(names[2], plot_overfit(curves, best=best, title=folder.path.name))
    return tuple(names)


def compute_facts(curves: OverfitCurves) -> dict[str, Any]:
    """The numbers of the report as JSON. A gap is the held-out minus the trained loss, measured in the same way; None
    if the trained share was not measured."""
    first, last = 0, len(curves.steps) - 1
    best = {"trained": _lowest(curves, curves.held_out), "average": _lowest(curves, curves.average)}
    at = {"first": first, "best": best["trained"]["row"] if best["trained"] else first, "last": last}
    quartiles = [
        {
            "quartile": index,
            "held_out": {name: _finite_or_none(held[row]) for name, row in at.items()},
            "trained": {name: _finite_or_none(trained[row]) for name, row in at.items()},
            "gap": {name: _finite_or_none(held[row] - trained[row]) for name, row in at.items()},
        }
        for index, (held, trained) in enumerate(zip(curves.held_quartiles, curves.trained_quartiles, strict=True))
    ]
    return {
        "schema": 1,
        "number": curves.tag,
        "measurements": len(curves.steps),
        "steps": {name: int(curves.steps[row]) for name, row in at.items()},
        "held_out": {name: _finite_or_none(curves.held_out[row]) for name, row in at.items()},
        "average": {name: _finite_or_none(curves.average[row]) for name, row in at.items()},
        "trained": {name: _finite_or_none(curves.trained[row]) for name, row in at.items()},
        "gap": {name: _finite_or_none(curves.held_out[row] - curves.trained[row]) for name, row in at.items()},
        "best": {
            name: None if point is None else {"step": point["step"], "loss": point["loss"]}
            for name, point in best.items()
        },
        "quartiles": quartiles,
    }


def _lowest(curves: OverfitCurves, losses: Any) -> dict[str, Any] | None:
    finite = [(float(loss), row) for row, loss in enumerate(losses) if math.isfinite(loss)]
    if not finite:
        return None
    loss, row = min(finite)
    return {"row": row, "step": int(curves.steps[row]), "loss": loss}


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def write_conclusions(facts: Mapping[str, Any]) -> list[str]:
    """The conclusions from the numbers, as sentences."""
    return [*_curve_sentences(facts), *_gap_sentences(facts), *_average_sentences(facts)]


def _curve_sentences(facts: Mapping[str, Any]) -> Sequence[str]:
    best, last = facts["best"]["trained"], facts["held_out"]["last"]
    if best is None or last is None or facts["measurements"] < 3:
        return ["There are too few measurements for a conclusion; set a shorter run.validation.every."]
    if best["step"] == facts["steps"]["first"]:
        return [
            "The held-out loss was never lower than before training: what was learned does not help with unseen "
            "images. Lower optim.lr, or check whether the held-out images are of the same kind."
        ]
    rise = last / best["loss"] - 1
    if rise <= RISE:
        return [f"The held-out loss ends at its lowest or within {RISE:.0%} of it: it shows no overfitting."]
    return [
        f"The held-out loss was lowest at step {best['step']:,} and has risen by {rise:.0%} since: after that step the "
        "model overfits its training images. Train for about that many steps; run.save.best keeps the best checkpoint."
    ]


def _gap_sentences(facts: Mapping[str, Any]) -> Sequence[str]:
    before, after = facts["gap"]["first"], facts["gap"]["last"]
    if before is None or after is None:
        return [
            "The gap between held-out and trained images was not measured; run.validation.training_fraction=0.1 "
            "measures it."
        ]
    grew = after - before > RISE * abs(facts["held_out"]["last"])
    change = "has grown" if grew else "has not grown"
    return [
        f"The gap between held-out and trained images {change}: {before:.4f} at the first measurement, {after:.4f} at "
        "the last."
    ]


def _average_sentences(facts: Mapping[str, Any]) -> Sequence[str]:
    raw, average = facts["held_out"]["last"], facts["average"]["last"]
    if raw is None or average is None:
        return []
    better, other = ("averaged", "trained") if average < raw else ("trained", "averaged")
    low, high = sorted((raw, average))
    return [f"At the end the {better} weights are better on held-out images: {low:.4f}, the {other} ones {high:.4f}."]


def lines(name: str, facts: Mapping[str, Any]) -> list[str]:
    """The lines of logs/overfit.txt."""
    steps = facts["steps"]
    text = [f"overfitting of run {name}, by {facts['number']}", "", *facts["words"], ""]
    header = (f"step {steps['first']:,}", f"step {steps['best']:,} (best)", f"step {steps['last']:,} (last)")
    text.append(_row("", header))
    rows = [(title, facts[key]) for title, key in _ROWS] + [
        (f"quartile {quartile['quartile']}, {title}", quartile[key])
        for quartile in facts["quartiles"]
        for title, key in (("held out", "held_out"), ("trained", "trained"), ("gap", "gap"))
    ]
    text += [_row(title, [_digits(cells[at]) for at in steps]) for title, cells in rows if _has_numbers(cells)]
    if best := facts["best"]["average"]:
        text.append(f"the averaged weights were best at step {best['step']:,}, with {best['loss']:.4f}")
    text.append("quartile 0 is the quarter of the schedule with least noise")
    return text


_ROWS = (
    ("held out", "held_out"), ("held out, averaged weights", "average"), ("trained share", "trained"), ("gap", "gap"),
)  # fmt: skip


def _has_numbers(cells: Mapping[str, float | None]) -> bool:
    return any(value is not None for value in cells.values())


def _digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _row(title: str, cells: Sequence[str]) -> str:
    return f"{title:28}" + "".join(f"{cell:>22}" for cell in cells)
