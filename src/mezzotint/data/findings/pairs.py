"""Findings about samples and their condition images, by the bytes of their files."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.catalogue.conditions import PairedImages
from mezzotint.data.findings.finding import Example, Finding, examples_of, limit_examples
from mezzotint.settings.counting import format_count

Rows = NDArray[np.int32]


def of_pairs(catalogue: Catalogue, rows: Rows) -> Iterator[Finding]:
    """Condition images that are the sample itself, pairs that are exchanged, and samples without an image. rows: of the
    examined samples."""
    for name, paired in catalogue.conditions.items():
        yield from _of_condition(catalogue, rows, name, paired)


def is_same_pair(catalogue: Catalogue, first: int, second: int) -> bool:
    """Whether two samples have the same condition images, by their bytes."""
    return all(_digest(paired, first) == _digest(paired, second) for paired in catalogue.conditions.values())


def _digest(paired: PairedImages, row: int) -> bytes:
    image = int(paired.rows[row])
    return paired.images.digest[image].tobytes() if image >= 0 else b""


def _of_condition(catalogue: Catalogue, rows: Rows, name: str, paired: PairedImages) -> Iterator[Finding]:
    missing = rows[paired.rows[rows] < 0]
    present = rows[paired.rows[rows] >= 0]
    if len(missing):
        yield Finding(
            "no-condition", "know", len(missing), f"{format_count(len(missing), 'sample')} without a {name} image",
            f"no action needed if these are meant to have none (data.conditions.{name}.optional)",
            examples_of(missing.tolist(), (catalogue.label(int(row)) for row in missing)),
        )  # fmt: skip
    is_same = (paired.images.digest[paired.rows[present]] == catalogue.digest[present]).all(axis=1)
    if same := present[is_same].tolist():
        yield Finding(
            "same-pairs", "look", len(same), f"{format_count(len(same), f'{name} image')} that are the sample itself",
            "remove them, unless the model shall learn to change nothing for such a caption",
            examples_of(same, (catalogue.label(row) for row in same)),
        )  # fmt: skip
    exchanged = _find_exchanged(catalogue, present[~is_same], paired)
    if exchanged:
        yield Finding(
            "exchanged-pairs", "mend", len(exchanged),
            f"{format_count(len(exchanged), 'pair')} of samples that are each other's {name} image",
            f"put the {name} image and the sample of one of them where they belong",
            limit_examples(
                Example(f"{catalogue.label(a)} and {catalogue.label(b)}", (("", a), ("", b))) for a, b in exchanged
            ),
        )  # fmt: skip


def _find_exchanged(catalogue: Catalogue, rows: Rows, paired: PairedImages) -> list[tuple[int, int]]:
    """Pairs (row, later row) where each is the condition image of the other."""
    by_digest = {catalogue.digest[row].tobytes(): row for row in reversed(rows.tolist())}
    exchanged = []
    for row in rows.tolist():
        other = by_digest.get(_digest(paired, row))
        if other is not None and row < other and _digest(paired, other) == catalogue.digest[row].tobytes():
            exchanged.append((row, other))
    return exchanged
