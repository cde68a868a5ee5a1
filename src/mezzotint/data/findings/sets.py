"""How much of an epoch each set of images has (`data.sets`, `data.prior.path`)."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.catalogue.data_report import readable
from mezzotint.data.findings.finding import Finding
from mezzotint.data.schedule.columns import PlanColumns
from mezzotint.settings.counting import format_count
from mezzotint.settings.sections.data import DataSettings


@dataclass(frozen=True, slots=True)
class SetSummary:
    """A set of images. images: trained ones. visits: to them in an epoch, on average. share: of all visits.
    resolution: its base sizes. weight: factor of its loss."""

    name: str
    path: str
    images: int
    visits: float
    share: float
    batch_size: int
    resolution: tuple[int, ...]
    weight: float
    is_class: bool

    @property
    def sizes(self) -> str:
        return ", ".join(map(str, self.resolution))

    def __str__(self) -> str:
        noun = "class image" if self.is_class else "image"
        weight = f", weight {self.weight:g}" if self.weight != 1 else ""
        return (
            f"{self.path}: {format_count(self.images, noun)}, {self.visits:,.6g} visits an epoch ({self.share:.0%}), "
            f"{self.sizes} px, batches of {self.batch_size}{weight}"
        )


def summarize_sets(
    catalogue: Catalogue, rows: NDArray[np.int32], columns: PlanColumns, settings: DataSettings
) -> tuple[SetSummary, ...]:
    """The sets in order; () without `data.sets` and class images. columns: of `rows`."""
    of_rows, choices = catalogue.set[rows], columns.choices
    entries = of_rows if choices is None else of_rows[choices.sample]
    per_visit = 1 if choices is None else np.where(choices.is_random, choices.count, 1)
    images = np.bincount(of_rows, minlength=len(catalogue.sets))
    visits = np.bincount(entries, weights=columns.repeats / per_visit, minlength=len(catalogue.sets))
    return tuple(
        SetSummary(
            name=f"set {number}",
            path=readable(os.fspath(one.settings.path or "")),
            images=int(images[number]),
            visits=float(visits[number]),
            share=float(visits[number] / max(visits.sum(), 1e-9)),
            batch_size=one.settings.batch_size,
            resolution=one.settings.resolution,
            weight=one.weight * (settings.prior.weight if one.is_class else 1.0),
            is_class=one.is_class,
        )
        for number, one in enumerate(catalogue.sets)
    )


def find_sets(summaries: tuple[SetSummary, ...]) -> Finding:
    """A table of the sets."""
    empty = [one.name for one in summaries if not one.images]
    missing = f"; without a trained image: {', '.join(empty)}" if empty else ""
    head = ("set", "folder", "images", "visits", "share", "batch", "resolution", "weight")
    table = [
        (
            one.name + " (class)" * one.is_class, one.path, f"{one.images:,}", f"{one.visits:,.6g}",
            f"{one.share:.0%}", str(one.batch_size), one.sizes, f"{one.weight:g}",
        )
        for one in summaries
    ]  # fmt: skip
    return Finding(
        "sets", "look" if empty else "know", len(summaries),
        f"{format_count(len(summaries), 'set')} of images{missing}",
        "repeats of a set change its share of an epoch, weight its share of the loss", (), (head, *table),
    )  # fmt: skip
