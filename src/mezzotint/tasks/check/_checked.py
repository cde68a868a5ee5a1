"""The results of a check: filled in by `check.py`, printed by `page.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from mezzotint.data.findings.captions import LostWords
from mezzotint.errors import MezzotintError
from mezzotint.settings.reading.read import Reading
from mezzotint.settings.recipe import Recipe
from mezzotint.shapes import Size
from mezzotint.tasks import assemble
from mezzotint.tasks.assemble import Dataset
from mezzotint.tasks.check import estimates
from mezzotint.tasks.check._dry_run import DryRun
from mezzotint.tasks.check._fit import Fit
from mezzotint.tasks.check._model_files import Component
from mezzotint.tasks.check.estimates import BucketRow, CacheNeed, Disk, Length
from mezzotint.tasks.check.memory import Memory
from mezzotint.tasks.check.plans import Plan
from mezzotint.tasks.describe import Line
from mezzotint.weights.model_files import ModelFiles


@dataclass(slots=True)
class Checked:
    """What is not known is None or empty, and `problems` contains the reason. description: see `describe`. lost:
    captions that the text encoder truncates. notes: sentences about what will run but may not be intended. names: where
    images are batched by name, how each name fills its buckets (`batch_report.HEAD`). free_memory: free bytes on the
    device, None if unknown. ways: settings with which a run that does not fit would fit. fit: what `--fit` found."""

    reading: Reading
    recipe: Recipe
    processes: int
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    description: list[Line] = field(default_factory=list)
    files: tuple[Component, ...] = ()
    memory: Memory | None = None
    dataset: Dataset | None = None
    buckets: tuple[BucketRow, ...] = ()
    names: tuple[tuple[str, ...], ...] = ()
    lost: LostWords | None = None
    length: Length | None = None
    caches: tuple[CacheNeed, ...] = ()
    disk: Disk | None = None
    dry: DryRun | None = None
    free_memory: int | None = None
    ways: Sequence[Plan] = ()
    fit: Fit | None = None
    notes: list[str] = field(default_factory=list)
    problems: list[MezzotintError] = field(default_factory=list)
    _opened: ModelFiles | None = None

    @property
    def fits(self) -> bool | None:
        """Whether a step's peak is at most the free memory; None if either is not known."""
        return None if self.memory is None or self.free_memory is None else self.memory.peak <= self.free_memory

    def largest_batches(self) -> dict[Size, int]:
        """The samples of the largest batch of each bucket that has batches, over all processes."""
        return estimates.largest_batches(self.buckets)

    def model_files(self) -> ModelFiles:
        """The model's files, opened once. Raises as `assemble.open_files`."""
        if self._opened is None:
            self._opened = assemble.open_files(self.recipe)
        return self._opened

    @contextmanager
    def collect_problems(self) -> Iterator[None]:
        """Context in which a MezzotintError is added to the problems, and the check continues."""
        try:
            yield
        except MezzotintError as error:
            self.add_problem(error)

    def add_problem(self, error: MezzotintError) -> None:
        """Adds a problem, unless it is already listed."""
        if (error.code, error.message) not in [(problem.code, problem.message) for problem in self.problems]:
            self.problems.append(error)
