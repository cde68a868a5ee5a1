"""Keeps what is worth keeping of a training run: its recipe, environment and history, and the curve of its loss.

    python tools/mini/record.py RUN_FOLDER FOLDER

FOLDER gets recipe.yaml (every setting as it was, paths shortened to names, so that nothing of the machine is told),
environment.json, history.jsonl and curve.csv: the mean loss, gradient norm and speed of each hundredth of the run.
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

POINTS = 100
"""Of the curve."""

COLUMNS = ("loss", "norm", "images_per_s")


def record(run: Path, folder: Path) -> None:
    """Writes the record of a run that has ended, or stands still."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = named(yaml.safe_load((run / "recipe.yaml").read_text("utf-8")))
    text = yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True, width=100)
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
    for name in ("environment.json", "history.jsonl"):
        shutil.copyfile(run / name, folder / name)
    lines = (run / "metrics.jsonl").read_text("utf-8").splitlines()
    with (folder / "curve.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("step", *COLUMNS))
        writer.writerows(curve([json.loads(line) for line in lines]))


def named(value: Any) -> Any:
    """A tree of settings in which every path is only the name it ends with."""
    if isinstance(value, dict):
        return {key: named(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [named(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and value.startswith(("/", "~")) else value


def curve(metrics: Sequence[dict[str, Any]]) -> Iterator[tuple[int | str, ...]]:
    """The last step of each piece of the run, and the means of COLUMNS over the piece."""
    steps = [entry for entry in metrics if "loss" in entry]
    for piece in np.array_split(np.arange(len(steps)), min(POINTS, len(steps))):
        entries = [steps[number] for number in piece]
        means = (f"{np.mean([entry[name] for entry in entries]):.5g}" for name in COLUMNS)
        yield (entries[-1]["step"], *means)


if __name__ == "__main__":
    record(Path(sys.argv[1]), Path(sys.argv[2]))
