"""Buckets that fill their batches badly, and names that a held-out share splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.catalogue.data_report import readable
from mezzotint.data.findings.finding import Example, Finding, limit_examples, name_first
from mezzotint.data.schedule.balance import Fill, fills
from mezzotint.data.schedule.plan import plan_columns
from mezzotint.recipe.counting import counted
from mezzotint.recipe.sections.data import DataSettings


def of_batches(catalogue: Catalogue, rows: NDArray[np.int32], settings: DataSettings) -> Iterator[Finding]:
    """Names and buckets that lack more than half as many images as they have. None where batches are neither filled up
    nor kept to names."""
    columns = plan_columns(catalogue, rows, settings)
    if settings.remainder not in ("fill", "repeat") and columns.group is None:
        return
    few = [_describe(catalogue, fill) for fill in fills(columns, settings) if fill.pictures and fill.is_underfilled]
    if few:
        yield Finding(
            "names", "look", len(few), f"{counted(len(few), 'bucket')} fill their batches badly",
            "add or remove as many images as each says", limit_examples(map(Example, few)),
        )  # fmt: skip


def _describe(catalogue: Catalogue, fill: Fill) -> str:
    name = f"{readable(catalogue.overrides.group_name(fill.group))!r}, " if fill.group else ""
    ratio = f"{fill.ratio.numerator}:{fill.ratio.denominator}"
    removed = f", remove {fill.over}" if fill.over < fill.pictures else ""
    return (
        f"{name}bucket {fill.bucket}: {counted(fill.pictures, 'image')} for batches of {fill.batch_size}; add "
        f"{fill.missing} of about {ratio}{removed}, or multiply these by {fill.multiplier:g}"
    )


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
