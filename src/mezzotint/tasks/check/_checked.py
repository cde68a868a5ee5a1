"""What a check has seen of a recipe: filled by `check.py`, shown by `page.py`."""

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
from mezzotint.tasks.check._model_files import Component
from mezzotint.tasks.check.estimates import BucketRow, CacheNeed, Disk, Length
from mezzotint.tasks.check.fitting import Way
from mezzotint.tasks.check.memory import Memory
from mezzotint.tasks.describe import Line
from mezzotint.weights.model_files import ModelFiles


@dataclass(slots=True)
class Checked:
    """What is not known is None or empty, and `problems` says why. description: see `describe`. lost: captions that the
    text encoder truncates. notes: sentences about what will run and may not be
    meant. names: where pictures are batched by name, how each name fills its buckets (`batch_report.HEAD`). at_hand:
    bytes of memory free on the device, None where nobody tells. ways: in which a run that does not fit would."""

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
    at_hand: int | None = None
    ways: Sequence[Way] = ()
    notes: list[str] = field(default_factory=list)
    problems: list[MezzotintError] = field(default_factory=list)
    _opened: ModelFiles | None = None

    @property
    def fits(self) -> bool | None:
        """Whether a step's peak is no more than what is free; None where one of them is not known."""
        return None if self.memory is None or self.at_hand is None else self.memory.peak <= self.at_hand

    def largest_batches(self) -> dict[Size, int]:
        """The samples of the largest batch of each bucket that has one, over all processes."""
        return estimates.largest_batches(self.buckets)

    def model_files(self) -> ModelFiles:
        """The model's files, opened once. Raises as `assemble.open_files`."""
        if self._opened is None:
            self._opened = assemble.open_files(self.recipe)
        return self._opened

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """An error of the reader's world within is kept, each once, and the check goes on."""
        try:
            yield
        except MezzotintError as error:
            self.keep(error)

    def keep(self, error: MezzotintError) -> None:
        """Adds a problem that is not among the others yet."""
        if (error.code, error.message) not in [(known.code, known.message) for known in self.problems]:
            self.problems.append(error)
