"""The data set that the doctor examines, and properties of each of its images."""

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

_SIDE = 64  # pixels, enough for a perceptual hash
_GREY = 3
_TOLERANT: dict[str, dict[str, Any]] = {
    "E1203": {"data.captions.missing": "empty"},
    "E1205": {"data.max_skipped": 1.0},
}
"""Errors that keep a run from starting, and settings with which the doctor opens the data anyway."""


@dataclass(slots=True)
class ExaminedData:
    """A data set and its images. samples: (set, row) of each examined image, trained ones first; the set "" is the data
    set itself, others are from `data.holdout.path`. trained: which of them are trained. hashes: perceptual hashes, None
    without the library. grey, plain: which images have no colours, or a single one."""

    recipe: Recipe
    dataset: Dataset
    samples: Sequence[tuple[str, int]]
    trained: NDArray[np.bool_]
    hashes: Looks | None = None
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

    def digest(self, index: int) -> bytes:
        """SHA-256 of an image file."""
        of_set, row = self.samples[index]
        return bytes(self.of_set(of_set)[0].digest[row])

    def image(self, sample: tuple[str, int], side: int) -> Image.Image:
        """A thumbnail of a sample (set, row). Raises DatasetError."""
        of_set, row = sample
        catalogue, settings = self.of_set(of_set)
        return likeness.image_of(catalogue, row, settings, side)

    def rows(self) -> NDArray[np.int64]:
        """The examined rows of the data set itself, in the order of `samples`."""
        return np.array([row for of_set, row in self.samples if not of_set], np.int64)


def open_data(recipe: Recipe) -> tuple[ExaminedData, list[Finding]]:
    """Opens the data of a located recipe, with findings about errors that would keep a run from starting. Raises
    RecipeError and DatasetError for data that cannot be opened at all."""
    if recipe.data.holdout.path and recipe.run.validation.every is None:
        recipe = with_values(
            recipe, {"run.validation.every": Every(1, "epochs")}
        )  # so that the validation data are opened
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
            problem, _, advice = error.message.partition("; ")
            sentence = f"no run starts ({error.code}): {problem}"
            refused.append(Finding("refused", "mend", 1, sentence, advice or problem))
    samples = [("", row) for row in [*dataset.rows.tolist(), *dataset.held.tolist()]]
    samples += [(name, row) for name, data_set in dataset.sets.items() for row in data_set.rows.tolist()]
    trained = np.arange(len(samples)) < len(dataset.rows)
    return ExaminedData(recipe, dataset, samples, trained), refused


def examine_images(examined: ExaminedData) -> Finding | None:
    """Decodes a thumbnail of each image and records its hash and colours, in place. Images that can no longer be
    decoded are skipped. Returns a finding if the library of hashes is missing."""
    count = len(examined.samples)
    examined.grey, examined.plain = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    try:
        likeness.require_library()
        hashes = Looks.empty(count)
    except DatasetError as error:
        advice = "pip install 'mezzotint[doctor]', then run doctor again"
        return Finding("no-hashes", "look", 1, error.message.partition(": pip")[0], advice)

    def examine(index: int) -> None:
        with suppress(MezzotintError, OSError):
            image = examined.image(examined.samples[index], _SIDE)
            hashes.put(index, image)
            pixels = np.asarray(image).astype(np.int16)
            examined.grey[index] = int((pixels.max(axis=2) - pixels.min(axis=2)).max()) <= _GREY
            examined.plain[index] = likeness.is_plain(image)

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for done, _ in enumerate(pool.map(examine, range(count)), start=1):
            carrying.print_progress(done, count)
    examined.hashes = hashes
    return None


def by_digest(examined: ExaminedData) -> Iterator[tuple[int, int]]:
    """Pairs (first index, later index) of images whose files are identical."""
    first: dict[bytes, int] = {}
    for index in range(len(examined.samples)):
        before = first.setdefault(examined.digest(index), index)
        if before != index:
            yield before, index
