"""`mezzotint.Run`: read access to a run folder."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mezzotint.reports.curves import read_metrics
from mezzotint.run_folder import RunFolder
from mezzotint.settings.reading.read import read
from mezzotint.settings.recipe import Recipe
from mezzotint.training.checkpoints import state


class Run:
    """A run by its folder, which may still be training. Properties read the files at each access.

    path: the run folder. Raises FileNotFoundError if it contains no run.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / "recipe.yaml").is_file():
            raise FileNotFoundError(f"{self.path} is not a run folder: it has no recipe.yaml")
        self._folder = RunFolder(self.path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @cached_property
    def recipe(self) -> Recipe:
        """The settings of its start, read once."""
        return read(self.path / "recipe.yaml").recipe

    @property
    def history(self) -> dict[str, NDArray[np.float64]]:
        """Numbers of each logged step by name (`step`, `loss`, `lr/…`, `images_per_s`, …), (n,); NaN if a step has
        none."""
        return _columns(read_metrics(self._folder).steps)

    @property
    def held_out(self) -> dict[str, NDArray[np.float64]]:
        """Numbers of each measurement of the held-out loss by name (`step`, `val/…`), (n,)."""
        return _columns(read_metrics(self._folder).held_out)

    @property
    def step(self) -> int:
        """The last step that was logged; 0 before the first."""
        return int(max(self.history.get("step", [0]), default=0))

    @property
    def is_finished(self) -> bool:
        """Whether the last start reached the end of the run."""
        events = [event.get("event") for event in self._folder.events()]
        return next((event == "finished" for event in reversed(events) if event in ("finished", "started")), False)

    @property
    def checkpoints(self) -> list[Path]:
        """Checkpoints, the newest first."""
        return state.list_checkpoints(self._folder.checkpoints)

    @property
    def exports(self) -> list[Path]:
        """Exported models or adapters, the oldest first; the averaged weights of a step come last."""
        paths = self._folder.exports.glob("[!.]*") if self._folder.exports.is_dir() else ()
        return sorted(
            (path for path in paths if path.suffix != ".md"), key=lambda path: (path.stat().st_mtime_ns, path.name)
        )

    @property
    def export(self) -> Path | None:
        """The export to use: the newest, with averaged weights (EMA) if they exist. None before the first."""
        return self.exports[-1] if self.exports else None

    @property
    def samples(self) -> list[Path]:
        """Preview images, the oldest first."""
        return sorted(self._folder.samples.rglob("*.png")) if self._folder.samples.is_dir() else []


def _columns(lines: object) -> dict[str, NDArray[np.float64]]:
    rows = [line for line in lines if isinstance(line, Mapping)] if isinstance(lines, (list, tuple)) else []
    names = dict.fromkeys(name for row in rows for name, value in row.items() if _is_number(value))
    return {name: np.array([_number(row.get(name)) for row in rows], dtype=np.float64) for name in names}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else float("nan")
