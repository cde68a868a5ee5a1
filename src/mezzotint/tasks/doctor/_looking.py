"""The data set that the doctor looks at, and how each of its pictures looks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from mezzotint.data.catalogue import likeness
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.catalogue.likeness import Looks
from mezzotint.data.findings.finding import Finding
from mezzotint.errors import DatasetError, MezzotintError
from mezzotint.runtimes.base import Launch
from mezzotint.runtimes.single import Runtime
from mezzotint.settings.base import Every, with_values
from mezzotint.settings.recipe import Recipe
from mezzotint.settings.sections.data import DataSettings
from mezzotint.tasks.assemble import Dataset
from mezzotint.tasks.cache import carrying

_SIDE = 64  # pixels that are enough for a hash
_GREY = 3
_TOLERANT: dict[str, dict[str, Any]] = {
    "E1203": {"data.captions.missing": "empty"},
    "E1205": {"data.max_skipped": 1.0},
}
"""What keeps a run from starting, and the doctor not."""


@dataclass(slots=True)
class ExaminedData:
    """A data set and its pictures. places: (set, row) of each picture that is looked at, trained ones first; the set ""
    is the data set itself, others are `data.holdout.path`'s. trained: which of them are trained. looks: of each, None
    without the library. grey, plain: which have no colours, or one."""

    recipe: Recipe
    dataset: Dataset
    places: Sequence[tuple[str, int]]
    trained: NDArray[np.bool_]
    looks: Looks | None = None
    grey: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    plain: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    def of_set(self, name: str) -> tuple[Catalogue, DataSettings]:
        """The catalogue of a set, and its settings."""
        if not name:
            return self.dataset.catalogue, self.recipe.data
        return self.dataset.sets[name].catalogue, self.dataset.sets[name].settings

    def name(self, sample: tuple[str, int]) -> str:
        """The name of a sample (set, row)."""
        of_set, row = sample
        key = self.of_set(of_set)[0].label(row)
        return f"{of_set}: {key}" if of_set else key

    def digest(self, place: int) -> bytes:
        """SHA-256 of a picture's file."""
        of_set, row = self.places[place]
        return bytes(self.of_set(of_set)[0].digest[row])

    def image(self, sample: tuple[str, int], side: int) -> Image.Image:
        """The image of a sample (set, row), small. Raises DatasetError."""
        of_set, row = sample
        catalogue, settings = self.of_set(of_set)
        return likeness.image_of(catalogue, row, settings, side)

    def rows(self) -> NDArray[np.int64]:
        """The rows of the data set itself that are looked at, in the order of their places."""
        return np.array([row for of_set, row in self.places if not of_set], np.int64)


def opened(recipe: Recipe) -> tuple[ExaminedData, list[Finding]]:
    """The data of a located recipe, and what would have kept a run from starting with them. Raises RecipeError and
    DatasetError for data that cannot be opened at all."""
    if recipe.data.holdout.path and recipe.run.validation.every is None:
        recipe = with_values(recipe, {"run.validation.every": Every(1, "epochs")})  # opens what would be measured
    refused: list[Finding] = []
    runtime = Runtime(torch.device("cpu"), Launch(), recipe.run)
    while True:
        try:
            dataset = carrying.open_dataset(recipe, runtime, carrying.print_progress)
            break
        except DatasetError as error:
            tolerant = _TOLERANT.get(error.code, {})
            if not tolerant or with_values(recipe, tolerant) == recipe:
                raise
            recipe = with_values(recipe, tolerant)
            what, _, advice = error.message.partition("; ")
            refused.append(Finding("refused", "mend", 1, f"no run starts ({error.code}): {what}", advice or what))
    places = [("", row) for row in [*dataset.rows.tolist(), *dataset.held.tolist()]]
    places += [(name, row) for name, one in dataset.sets.items() for row in one.rows.tolist()]
    trained = np.arange(len(places)) < len(dataset.rows)
    return ExaminedData(recipe, dataset, places, trained), refused


def look(looked: ExaminedData) -> Finding | None:
    """Decodes each picture, small, and notes how it looks. What cannot be decoded any more looks like nothing. Returns
    a finding without the library of hashes."""
    count = len(looked.places)
    looked.grey, looked.plain = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    try:
        likeness.require_library()
        looks = Looks.empty(count)
    except DatasetError as error:
        advice = "pip install 'mezzotint[doctor]', then ask again"
        return Finding("no-hashes", "look", 1, error.message.partition(": pip")[0], advice)

    def put(place: int) -> None:
        with suppress(MezzotintError, OSError):
            image = looked.image(looked.places[place], _SIDE)
            looks.put(place, image)
            pixels = np.asarray(image).astype(np.int16)
            looked.grey[place] = int((pixels.max(axis=2) - pixels.min(axis=2)).max()) <= _GREY
            looked.plain[place] = likeness.is_plain(image)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done, _ in enumerate(pool.map(put, range(count)), start=1):
            carrying.print_progress(done, count)
    looked.looks = looks
    return None


def by_digest(looked: ExaminedData) -> Iterator[tuple[int, int]]:
    """(first place, later place) of pictures whose files have the same bytes."""
    first: dict[bytes, int] = {}
    for place in range(len(looked.places)):
        before = first.setdefault(looked.digest(place), place)
        if before != place:
            yield before, place
