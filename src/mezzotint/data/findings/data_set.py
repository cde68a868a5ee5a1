"""The list of what is found about a data set without decoding its images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.catalogue import requirements
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.findings import batches, captions, files, images
from mezzotint.data.findings.captions import LostWords
from mezzotint.data.findings.finding import Finding, in_order
from mezzotint.recipe.counting import counted
from mezzotint.recipe.formats.base import format_spec
from mezzotint.recipe.sections.data import DataSettings

Rows = NDArray[np.int32]


def of_data(
    catalogue: Catalogue, settings: DataSettings, *, rows: Rows, held: Rows, others: Sequence[Catalogue] = (),
    lost: LostWords | None = None,
) -> tuple[Finding, ...]:  # fmt: skip
    """The findings about a data set, the worst first; most of the time there are few. rows, held: trained and held-out
    samples. others: the catalogues of `data.holdout.path`. lost: captions that the text encoder truncates, where they
    were measured."""
    return in_order(_all(catalogue, settings, rows, held, others, lost))


def count_samples(
    catalogue: Catalogue, settings: DataSettings, *, rows: Rows, held: Rows, sets: Mapping[str, int]
) -> str:  # fmt: skip
    """`90 pictures, 10 held out, 40 with a mask`. sets: samples of each set of `data.holdout.path`."""
    counts = {
        "held out": len(held),
        **{f"of val/{name}": count for name, count in sets.items()},
        "with a mask": requirements.count_masks(catalogue, rows, settings),
    }
    samples = counted(len(rows), "clip" if settings.has_clips else "picture")
    return ", ".join([samples, *(f"{count:,} {what}" for what, count in counts.items() if count)])


def _all(
    catalogue: Catalogue, settings: DataSettings, rows: Rows, held: Rows, others: Sequence[Catalogue],
    lost: LostWords | None,
) -> Iterator[Finding]:  # fmt: skip
    catalogues = [catalogue, *others]
    for each in catalogues + [one.stills for one in catalogues if one.stills is not None]:
        yield from files.of_files(each.report, each.roots)
    if format_spec(settings.format).hints_at_repeats:
        yield from files.of_repeats(catalogue.roots, settings)
    paths = [path.resolve() for path in settings.path]
    if len(set(paths)) == len(paths):  # a folder that is named twice has a note of its own
        yield from images.of_copies(catalogue, rows)
    all_rows = np.concatenate([rows, held])
    yield from images.of_sizes(catalogue, all_rows, settings)
    yield from captions.of_captions(catalogue, all_rows)
    yield from captions.of_directions(catalogue, rows, settings)
    yield from captions.of_lost_words(catalogue, lost, settings.captions)
    yield from batches.of_batches(catalogue, rows, settings)
    yield from batches.of_split_names(catalogue, rows, held)
