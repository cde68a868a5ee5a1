"""Condition images of a data set (`data.conditions`): each condition is a catalogue of its own, paired with the samples
by name or by row."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.catalogue.data_report import readable
from mezzotint.errors import DatasetError
from mezzotint.settings.counting import format_count, format_names
from mezzotint.settings.formats.base import format_spec
from mezzotint.settings.sections import condition_sets
from mezzotint.settings.sections.data import DataSettings

if TYPE_CHECKING:
    from mezzotint.data.catalogue.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class PairedImages:
    """The images of one condition. images: their catalogue. rows: int32 (n,), the row in it of each sample, −1 for a
    sample without one."""

    images: Catalogue
    rows: NDArray[np.int32]


def pair(catalogue: Catalogue, images: Catalogue, settings: DataSettings, name: str) -> PairedImages:
    """Pairs samples with the images of a condition that have their name, or their row of the data set. Raises
    DatasetError E1294 for samples without one, unless it is optional, and for two images of one name; E1295 for one
    with another aspect ratio."""
    is_own = condition_sets.is_in_data_set(settings, name)
    rows = _rows_by_key(catalogue, images) if is_own else _rows_by_file(catalogue, images, settings, name)
    is_required = np.array([not one.settings.conditions[name].optional for one in settings.image_sets()])
    missing = np.flatnonzero((rows < 0) & is_required[catalogue.set])
    if len(missing):
        raise DatasetError(
            f"data.conditions: {format_count(len(missing), 'sample')} without a {name} image: "
            f"{format_names([catalogue.label(int(row)) for row in missing[:20]], 10)}"
            f"{_first_reason(images) if is_own else ''}; "
            f"{_remedy(settings, name) if is_own else 'add an image of the same name and suffix'}, remove the sample, "
            f"or set data.conditions.{name}.optional=true",
            code="E1294",
        )
    is_aligned = np.array([one.settings.conditions[name].align == "target" for one in settings.image_sets()])
    unfit = list(_list_unfit(catalogue, images, np.where(is_aligned[catalogue.set], rows, -1)))
    if unfit:
        raise DatasetError(
            f"data.conditions: {format_count(len(unfit), f'{name} image')} of another shape than the sample: "
            f"{format_names(unfit, 5)}; crop both in the same way",
            code="E1295",
        )
    return PairedImages(images, rows)


def explain_none(images: Catalogue, settings: DataSettings, name: str) -> str:
    """Why a data set without any image of a condition that it should have itself is an error."""
    where, remedy = ", ".join(map(str, images.roots)), _remedy(settings, name)
    return (
        f"{where}: no sample has a {name} image{_first_reason(images)}; {remedy}, or write "
        f"data.conditions.{name}.column"
    )


def _first_reason(images: Catalogue) -> str:
    """Why the first image that is left out is, in parentheses."""
    reasons = (*images.report.skipped, *images.report.left_out)
    return f" ({readable(reasons[0][0])}: {readable(reasons[0][1])})" if reasons else ""


def _remedy(settings: DataSettings, name: str) -> str:
    """How an image is added to a data set that has the images of a condition itself."""
    column = settings.image_sets()[0].settings.conditions[name].column_of(name)
    is_table = format_spec(settings.format).has_columns
    return f"put one into its column {column!r}" if is_table else f"add KEY.{column}.png to the shard"


def _rows_by_key(catalogue: Catalogue, images: Catalogue) -> NDArray[np.int32]:
    """The row in `images` of each sample, for images that have the samples' keys; −1 without one."""
    by_key = {key: row for row, key in enumerate(images.keys())}
    keys = catalogue.keys()
    return np.fromiter((by_key.get(key, -1) for key in keys), np.int32, len(catalogue))


def _rows_by_file(catalogue: Catalogue, images: Catalogue, settings: DataSettings, name: str) -> NDArray[np.int32]:
    """The row in `images` of each sample, by the names of files; −1 without one. Raises DatasetError E1294."""
    suffixes = [one.settings.conditions[name].suffix for one in settings.image_sets()]
    by_name = _rows_by_name(images, name)
    stems = [stem + suffixes[number] for stem, number in zip(_stems(catalogue), catalogue.set.tolist(), strict=True)]
    return np.fromiter((by_name.get(stem, by_name.get(_in_set(stem), -1)) for stem in stems), np.int32, len(catalogue))


def _rows_by_name(images: Catalogue, name: str) -> dict[str, int]:
    """The row of each image by its key without extension, and by its set and file name if that is unique."""
    stems = _stems(images)
    by_name = {stem: row for row, stem in enumerate(stems)}
    if len(by_name) < len(stems):
        row, stem = next((row, stem) for row, stem in enumerate(stems) if by_name[stem] != row)
        paths = images.path(row), images.path(by_name[stem])
        raise DatasetError(f"{paths[0]} and {paths[1]} are {name} images of one sample; keep one of them", code="E1294")
    short: dict[str, int] = {}
    for stem, row in by_name.items():
        key = _in_set(stem)
        short[key] = -1 if key in short else row
    return {key: row for key, row in short.items() if row >= 0} | by_name


def _stems(catalogue: Catalogue) -> list[str]:
    """The keys of samples without extensions."""
    keys = catalogue.keys()
    return [os.path.splitext(key)[0] for key in keys]


def _in_set(stem: str) -> str:
    """A key without its folders but the number of its set."""
    first, _, rest = stem.partition("/")
    last = stem.rpartition("/")[2]
    return f"{first}/{last}" if rest and first.isdigit() else last


def _list_unfit(catalogue: Catalogue, images: Catalogue, rows: NDArray[np.int32]) -> Iterator[str]:
    """Pairs of which one cannot be the other resized: their aspect ratios differ by more than a pixel, or
    their regions."""
    paired = np.flatnonzero(rows >= 0)
    for row in paired.tolist() if catalogue.overrides.has_regions or images.overrides.has_regions else ():
        if catalogue.overrides.region_of(row) != images.overrides.region_of(int(rows[row])):
            yield f"{catalogue.label(row)} and its image differ in crop or rotate (mezzotint.jsonl)"
    width, height = (getattr(catalogue, side)[paired].astype(np.int64) for side in ("width", "height"))
    wide, high = (getattr(images, side)[rows[paired]].astype(np.int64) for side in ("width", "height"))
    largest = np.maximum(np.maximum(width, height), np.maximum(wide, high))
    for i in np.flatnonzero(np.abs(width * high - wide * height) > largest).tolist():
        yield f"{catalogue.label(int(paired[i]))} is {width[i]}×{height[i]}, its image {wide[i]}×{high[i]}"


def fingerprint_with(fingerprint: str, conditions: Mapping[str, PairedImages]) -> str:
    """The fingerprint of a data set with condition images: their bytes, by sample."""
    state = hashlib.sha256(fingerprint.encode("ascii"))
    for name, paired in conditions.items():
        digests = np.where(paired.rows[:, None] >= 0, paired.images.digest[paired.rows], np.uint8(0))
        state.update(f" {name} ".encode("ascii") + digests.tobytes())
    return state.hexdigest()
