"""The list of what is found about a data set without decoding its images."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mezzotint.data.catalogue import requirements
from mezzotint.recipe.counting import counted
from mezzotint.recipe.formats.base import format_spec
from mezzotint.recipe.recipe import Recipe
from mezzotint.tasks.assemble import Dataset
from mezzotint.tasks.findings import batches, captions, files, images
from mezzotint.tasks.findings.finding import Finding, in_order
from mezzotint.tasks.prompts.long_captions import LostWords


def of_data(recipe: Recipe, dataset: Dataset, lost: LostWords | None = None) -> tuple[Finding, ...]:
    """The findings about an opened data set, the worst first; most of the time there are few. lost: captions that the
    text encoder truncates, where they were measured."""
    return in_order(_all(recipe, dataset, lost))


def count_samples(recipe: Recipe, dataset: Dataset) -> str:
    """`90 pictures, 10 held out, 40 with a mask`."""
    counts = {
        "held out": len(dataset.held),
        **{f"of val/{name}": len(one.rows) for name, one in dataset.sets.items()},
        "with a mask": requirements.count_masks(dataset.catalogue, dataset.rows, recipe.data),
    }
    samples = counted(len(dataset.rows), "clip" if recipe.data.has_clips else "picture")
    return ", ".join([samples, *(f"{count:,} {what}" for what, count in counts.items() if count)])


def _all(recipe: Recipe, dataset: Dataset, lost: LostWords | None) -> Iterator[Finding]:
    catalogue, settings = dataset.catalogue, recipe.data
    rows = np.concatenate([dataset.rows, dataset.held])
    catalogues = [catalogue, *(one.catalogue for one in dataset.sets.values())]
    for each in catalogues + [one.stills for one in catalogues if one.stills is not None]:
        yield from files.of_files(each.report, each.roots)
    if format_spec(settings.format).hints_at_repeats:
        yield from files.of_repeats(catalogue.roots, settings)
    paths = [path.resolve() for path in settings.path]
    if len(set(paths)) == len(paths):  # a folder that is named twice has a note of its own
        yield from images.of_copies(catalogue, dataset.rows)
    yield from images.of_sizes(catalogue, rows, settings)
    yield from captions.of_captions(catalogue, rows)
    yield from captions.of_directions(catalogue, dataset.rows, settings)
    yield from captions.of_lost_words(catalogue, lost, settings.captions)
    yield from batches.of_batches(catalogue, dataset.rows, settings)
    yield from batches.of_split_names(catalogue, dataset.rows, dataset.held)
