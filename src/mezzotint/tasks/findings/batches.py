"""Buckets that fill their batches badly, and names that a held-out share splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.catalogue.data_report import readable
from mezzotint.recipe.counting import counted
from mezzotint.recipe.sections.data import DataSettings
from mezzotint.reports import batch_report
from mezzotint.tasks.findings.finding import Example, Finding, limit_examples, name_first


def of_batches(catalogue: Catalogue, rows: NDArray[np.int32], settings: DataSettings) -> Iterator[Finding]:
    """Names and buckets that lack more than half as many images as they have."""
    few = batch_report.underfilled(catalogue, rows, settings)
    if few:
        yield Finding(
            "names", "look", len(few), f"{counted(len(few), 'bucket')} fill their batches badly",
            "add or remove as many images as each says", limit_examples(map(Example, few)),
        )  # fmt: skip


def of_split_names(catalogue: Catalogue, rows: NDArray[np.int32], held: NDArray[np.int32]) -> Iterator[Finding]:
    """Names whose images are batched together and of which `data.holdout.share` takes some."""
    overrides = catalogue.overrides
    held_of, trained_of = (Counter(overrides.group[chosen].tolist()) for chosen in (held, rows))
    split = [
        f"{count} of the {count + trained_of[group]} of {readable(overrides.group_name(group))!r}"
        for group, count in sorted(held_of.items())
        if group
    ]
    if split:
        yield Finding(
            "split-names", "look", len(split),
            f"data.holdout.share splits images that are batched together by name: it takes {name_first(split)}",
            "to keep them whole, hold out a folder with data.holdout.path (EveryDream2's val_split_mode manual)",
        )  # fmt: skip
