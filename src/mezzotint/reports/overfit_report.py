"""Whether a run has learned its pictures by heart: logs/overfit.txt, overfit.json and overfit.png, from its metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mezzotint import durable
from mezzotint.reports.curves import OverfitCurves, overfit_curves, read_metrics
from mezzotint.run_folder import RunFolder

RISE = 0.01
"""A loss that ends so much above its lowest has risen."""


def overfit_report(folder: RunFolder) -> tuple[Path, ...]:
    """Writes the three files where the held-out loss was measured; returns what was written. Raises
    StorageError."""
    # here, not above: matplotlib takes half a second that no start of a training should pay
    from mezzotint.reports.plots import plot_overfit

    curves = overfit_curves(read_metrics(folder))
    if curves is None:
        return ()
    facts = facts_of(curves)
    facts["words"] = sentences(facts)
    with durable.storage_errors(folder.logs):
        folder.logs.mkdir(parents=True, exist_ok=True)
        names = [folder.logs / f"overfit.{ending}" for ending in ("txt", "json", "png")]
        durable.write_file(names[0], "\n".join(lines(folder.path.name, facts)) + "\n")
        durable.write_json(names[1], facts)
        best = facts["best"]["average" if facts["best"]["average"] else "trained"]["step"]
        durable.write_file(names[2], plot_overfit(curves, best=best, title=folder.path.name))
    return tuple(names)


def facts_of(curves: OverfitCurves) -> dict[str, Any]:
    """The numbers of the report as JSON. A gap is held out minus trained, measured alike; None where the training share
    was not measured."""
    first, last = 0, len(curves.steps) - 1
    best = {"trained": _lowest(curves, curves.held_out), "average": _lowest(curves, curves.average)}
    at = {"first": first, "best": best["trained"]["place"] if best["trained"] else first, "last": last}
    quartiles = [
        {
            "quartile": place,
            "held_out": {name: _plain(held[row]) for name, row in at.items()},
            "trained": {name: _plain(trained[row]) for name, row in at.items()},
            "gap": {name: _plain(held[row] - trained[row]) for name, row in at.items()},
        }
        for place, (held, trained) in enumerate(zip(curves.held_quartiles, curves.trained_quartiles, strict=True))
    ]
    return {
        "schema": 1,
        "number": curves.tag,
        "measurements": len(curves.steps),
        "steps": {name: int(curves.steps[row]) for name, row in at.items()},
        "held_out": {name: _plain(curves.held_out[row]) for name, row in at.items()},
        "average": {name: _plain(curves.average[row]) for name, row in at.items()},
        "trained": {name: _plain(curves.trained[row]) for name, row in at.items()},
        "gap": {name: _plain(curves.held_out[row] - curves.trained[row]) for name, row in at.items()},
        "best": {
            name: None if one is None else {"step": one["step"], "loss": one["loss"]} for name, one in best.items()
        },
        "quartiles": quartiles,
    }


def _lowest(curves: OverfitCurves, losses: Any) -> dict[str, Any] | None:
    finite = [(float(loss), place) for place, loss in enumerate(losses) if math.isfinite(loss)]
    if not finite:
        return None
    loss, place = min(finite)
    return {"place": place, "step": int(curves.steps[place]), "loss": loss}


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def sentences(facts: Mapping[str, Any]) -> list[str]:
    """What the numbers say, in words."""
    return [*_of_the_curve(facts), *_of_the_gap(facts), *_of_the_average(facts)]


def _of_the_curve(facts: Mapping[str, Any]) -> Sequence[str]:
    best, last = facts["best"]["trained"], facts["held_out"]["last"]
    if best is None or last is None or facts["measurements"] < 3:
        return ["There are too few measurements to tell; a shorter run.validation.every makes more."]
    if best["step"] == facts["steps"]["first"]:
        return [
            "The held-out loss was never lower than before training: what was learned does not help with unseen "
            "pictures. Lower optim.lr, or look whether the held-out pictures are of the same kind."
        ]
    rise = last / best["loss"] - 1
    if rise <= RISE:
        return [f"The held-out loss ends at its lowest or within {RISE:.0%} of it: it shows no overfitting."]
    return [
        f"The held-out loss was lowest at step {best['step']:,} and has risen by {rise:.0%} since: from there on the "
        "model has learned its own pictures more than what they have in common. About so many steps suit these data; "
        "run.save.best keeps the checkpoint."
    ]


def _of_the_gap(facts: Mapping[str, Any]) -> Sequence[str]:
    before, after = facts["gap"]["first"], facts["gap"]["last"]
    if before is None or after is None:
        return [
            "How far trained pictures are ahead of held-out ones is not known; run.validation.training_fraction=0.1 "
            "measures it in the same way."
        ]
    grew = after - before > RISE * abs(facts["held_out"]["last"])
    how = "has grown" if grew else "has not grown"
    return [
        f"The gap between held-out and trained pictures {how}: {before:.4f} at the first measurement, {after:.4f} at "
        "the last."
    ]


def _of_the_average(facts: Mapping[str, Any]) -> Sequence[str]:
    raw, average = facts["held_out"]["last"], facts["average"]["last"]
    if raw is None or average is None:
        return []
    better, other = ("averaged", "trained") if average < raw else ("trained", "averaged")
    low, high = sorted((raw, average))
    return [f"At the end the {better} weights are better on held-out pictures: {low:.4f}, the {other} ones {high:.4f}."]


def lines(name: str, facts: Mapping[str, Any]) -> list[str]:
    """The lines of logs/overfit.txt."""
    steps = facts["steps"]
    text = [f"overfitting of run {name}, by {facts['number']}", "", *facts["words"], ""]
    header = (f"step {steps['first']:,}", f"step {steps['best']:,} (best)", f"step {steps['last']:,} (last)")
    text.append(_row("", header))
    rows = [(word, facts[key]) for word, key in _ROWS] + [
        (f"quartile {one['quartile']}, {word}", one[key])
        for one in facts["quartiles"]
        for word, key in (("held out", "held_out"), ("trained", "trained"), ("gap", "gap"))
    ]
    text += [_row(word, [_digits(cells[at]) for at in steps]) for word, cells in rows if any(_known(cells))]
    if best := facts["best"]["average"]:
        text.append(f"the averaged weights were best at step {best['step']:,}, with {best['loss']:.4f}")
    text.append("quartile 0 is the quarter of the schedule with least noise")
    return text


_ROWS = (
    ("held out", "held_out"), ("held out, averaged weights", "average"), ("trained share", "trained"), ("gap", "gap"),
)  # fmt: skip


def _known(cells: Mapping[str, float | None]) -> list[bool]:
    return [value is not None for value in cells.values()]


def _digits(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _row(word: str, cells: Sequence[str]) -> str:
    return f"{word:28}" + "".join(f"{cell:>22}" for cell in cells)
