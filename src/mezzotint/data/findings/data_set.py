"""The findings about a data set without decoding its images, and about its batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.catalogue import requirements
from mezzotint.data.catalogue.catalogue import Catalogue
from mezzotint.data.catalogue.data_report import readable
from mezzotint.data.findings import captions, files, images, pairs
from mezzotint.data.findings.captions import LostWords
from mezzotint.data.findings.finding import Example, Finding, in_order, limit_examples, name_first
from mezzotint.data.schedule.balance import Fill, fills
from mezzotint.data.schedule.columns import plan_columns
from mezzotint.settings.counting import format_count
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.sections.data import DataSettings

Rows = NDArray[np.int32]


def of_data(
    catalogue: Catalogue, settings: DataSettings, *, rows: Rows, held: Rows, others: Sequence[Catalogue] = (),
    lost: LostWords | None = None,
) -> tuple[Finding, ...]:  # fmt: skip
    """The findings about a data set, the worst first. rows, held: trained and held-out samples. others: the catalogues
    of `data.holdout.path`. lost: captions that the text encoder truncates, if they were measured."""
    return in_order(_all(catalogue, settings, rows, held, others, lost))


def count_samples(
    catalogue: Catalogue, settings: DataSettings, *, rows: Rows, held: Rows, sets: Mapping[str, int]
) -> str:  # fmt: skip
    """`90 images, 10 held out, 40 with a mask`. sets: samples of each set of `data.holdout.path`."""
    counts = {
        "held out": len(held),
        **{f"of val/{name}": count for name, count in sets.items()},
        "with a mask": requirements.count_masks(catalogue, rows, settings),
    }
    samples = format_count(len(rows), "clip" if settings.has_clips else "image")
    return ", ".join([samples, *(f"{count:,} {kind}" for kind, count in counts.items() if count)])


def _all(
    catalogue: Catalogue, settings: DataSettings, rows: Rows, held: Rows, others: Sequence[Catalogue],
    lost: LostWords | None,
) -> Iterator[Finding]:  # fmt: skip
    catalogues = [catalogue, *others]
    for each in catalogues + [videos.joined_images for videos in catalogues if videos.joined_images is not None]:
        yield from files.of_files(each.report, each.roots)
    if format_spec(settings.format).hints_at_repeats:
        yield from files.of_repeats(catalogue.roots, settings)
    paths = [path.resolve() for path in settings.paths]
    if len(set(paths)) == len(paths):  # a folder that is listed twice has its own note
        yield from images.of_copies(catalogue, rows)
    all_rows = np.concatenate([rows, held])
    yield from pairs.of_pairs(catalogue, all_rows)
    yield from images.of_sizes(catalogue, all_rows, settings)
    yield from captions.of_captions(catalogue, all_rows)
    yield from captions.of_directions(catalogue, rows, settings)
    yield from captions.of_lost_words(catalogue, lost, settings.captions)
    yield from of_batches(catalogue, rows, settings)
    yield from of_split_names(catalogue, rows, held)


def of_batches(catalogue: Catalogue, rows: Rows, settings: DataSettings) -> Iterator[Finding]:
    """Names and buckets that lack more than half as many images as they have. None if batches are neither filled up nor
    grouped by name."""
    if settings.remainder not in ("fill", "repeat") and not catalogue.overrides.group[rows].any():
        return
    columns = plan_columns(catalogue, rows, settings)
    few = [_describe(catalogue, fill) for fill in fills(columns, settings) if fill.images and fill.is_underfilled]
    if few:
        yield Finding(
            "names", "look", len(few), f"{format_count(len(few), 'bucket')} with too few images for full batches",
            "add or remove the number of images given for each", limit_examples(map(Example, few)),
        )  # fmt: skip


def _describe(catalogue: Catalogue, fill: Fill) -> str:
    name = f"{readable(catalogue.overrides.group_name(fill.group))!r}, " if fill.group else ""
    ratio = f"{fill.ratio.numerator}:{fill.ratio.denominator}"
    removed = f", remove {fill.over}" if fill.over < fill.images else ""
    return (
        f"{name}bucket {fill.bucket}: {format_count(fill.images, 'image')} for batches of {fill.batch_size}; add "
        f"{fill.missing} of about {ratio}{removed}, or multiply these by {fill.multiplier:g}"
    )


def of_split_names(catalogue: Catalogue, rows: Rows, held: Rows) -> Iterator[Finding]:
    """Names whose images are batched together and of which `data.holdout.fraction` holds out some."""
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
            f"data.holdout.fraction splits images that are batched together by name: it holds out {name_first(split)}",
            "to keep them together, hold out a folder with data.holdout.path",
        )  # fmt: skip
