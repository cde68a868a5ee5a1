"""What validation measures: held-out images, separate folders, a share of the trained images."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mezzotint import draws, durable
from mezzotint.data.loading.loader import held_out_batches
from mezzotint.run_folder import RunFolder
from mezzotint.settings.recipe import Recipe
from mezzotint.stages import Batch
from mezzotint.tasks.assemble import Caches, Dataset


def batches(
    recipe: Recipe, dataset: Dataset, caches: Caches, at_most: int | None = None
) -> dict[str, tuple[Batch, ...]]:
    """The sets that validation measures, by name: "loss" is the data set's own share. at_most: the number of samples of
    each set, the first ones; None is all."""

    sets = {"loss": (dataset.catalogue, dataset.held, recipe.data)} if len(dataset.held) else {}
    sets |= {name: (data_set.catalogue, data_set.rows, data_set.settings) for name, data_set in dataset.sets.items()}
    if len(trained := trained_rows(recipe, dataset)):
        sets["train"] = dataset.catalogue, trained, recipe.data
    seed = recipe.run.seed
    return {
        name: held_out_batches(catalogue, rows[:at_most], settings, seed=seed, caches=caches)
        for name, (catalogue, rows, settings) in sets.items()
    }


def trained_rows(recipe: Recipe, dataset: Dataset) -> NDArray[np.int32]:
    """The trained rows that are measured as well: each with the chance `run.validation.training_fraction`, drawn by
    (seed, its key); at least one, at most `data.holdout.max_samples` of the smallest draws. Empty with a share of 0."""
    share = recipe.run.validation.training_fraction
    if share == 0 or recipe.run.validation.every is None:
        return np.zeros(0, dtype=np.int32)
    drawn = draws.uniforms(draws.keys(recipe.run.seed, "validation-train", dataset.catalogue.key_hash[dataset.rows]))
    count = max(1, min(int((drawn < share).sum()), recipe.data.holdout.max_samples, len(dataset.rows)))
    return np.sort(dataset.rows[np.argsort(drawn, kind="stable")[:count]])


def is_measured(recipe: Recipe, dataset: Dataset) -> bool:
    """Whether validation measures anything."""
    if recipe.run.validation.every is None:
        return False
    return bool(len(dataset.held) or dataset.sets or recipe.run.validation.training_fraction)


def write_list(folder: RunFolder, dataset: Dataset) -> None:
    """Writes logs/held_out.txt: images that are measured and not trained, one path a line. Raises StorageError."""
    rows = [
        (dataset.catalogue, dataset.held),
        *((data_set.catalogue, data_set.rows) for data_set in dataset.sets.values()),
    ]
    paths = [os.fsencode(catalogue.path(row)) for catalogue, of_set in rows for row in of_set.tolist()]
    file = folder.logs / "held_out.txt"
    if paths or file.exists():
        durable.write_file(file, b"".join(path + b"\n" for path in paths))


def warn_of_trained(dataset: Dataset, warn: Callable[[str], None]) -> None:
    """Warns of validation sets with images that are trained as well, compared by content."""
    trained = {bytes(digest) for digest in dataset.catalogue.digest[dataset.rows]} if dataset.sets else set()
    for name, data_set in dataset.sets.items():
        count = sum(bytes(digest) in trained for digest in data_set.catalogue.digest[data_set.rows])
        if count:
            warn(
                f"{count} of the {len(data_set.rows)} images of data.holdout.path {name} are trained as well, so "
                f"val/{name} does not measure only unseen images; remove them from data.path"
            )
