"""Settings of single samples that override the recipe's: probabilities of flip and caption dropout, whether it is a
class image, whether its tags are shuffled, its batch name, its rating, its weighted tags. Additional columns of the
catalogue.

A dataset format gives them as `Sample.group` and as texts in `Sample.overrides`, under the names in `NAMES`.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mezzotint.data.files import columns
from mezzotint.data.files.columns import TextBuilder, Texts
from mezzotint.data.files.regions import Region
from mezzotint.stages import Sample

NAMES = (
    "flip",
    "caption_dropout",
    "shuffle_tags",
    "rating",
    "tags",
    "start",
    "embedding",
    "sizes",
    "prior",
    "mask",
    "region",
)
"""Names of `Sample.overrides`, with values: a probability 0 to 1, a probability, "true", a number above 0,
`tags.Tags.encoded`, the first frame of a clip, a file of text embeddings with its size and time (`Marked`), six numbers
(original height and width, crop top and left, target height and width, if they differ from those of the placement),
"true" for a class image, the path of a mask file, `regions.Region.encoded`."""

_DEFAULTS: Mapping[str, np.number[Any]] = {
    "flip": np.float32(math.nan),
    "caption_dropout": np.float32(math.nan),
    "shuffle_tags": np.uint8(0),
    "rating": np.float32(1),
    "group": np.int32(0),
    "start": np.int32(-1),
    "prior": np.uint8(0),
}
"""The numeric columns: their dtypes, and the values of samples without an override."""

_TEXTS = ("tags", "embedding", "sizes")
_FLAGS = ("shuffle_tags", "prior")


@dataclass(frozen=True, slots=True)
class SampleOverrides:
    """Columns of n rows. flip, caption_dropout: float32, NaN for the recipe's. shuffle_tags: uint8, 1 to shuffle tags
    regardless of the recipe. rating: float32. group: int32, 0 for none, otherwise a number for `group_name`. start:
    int32, the first frame of the clip's entry, −1 without one. prior: uint8, 1 for a class image. mask_digest: (n, 32)
    uint8, SHA-256 of the mask file, zeros without one; None if no sample has one."""

    flip: NDArray[np.float32]
    caption_dropout: NDArray[np.float32]
    shuffle_tags: NDArray[np.uint8]
    rating: NDArray[np.float32]
    group: NDArray[np.int32]
    start: NDArray[np.int32]
    prior: NDArray[np.uint8]
    _group_name: Texts
    _tags: Texts
    _embedding: Texts
    _sizes: Texts
    mask_digest: NDArray[np.uint8] | None = None
    _mask: Texts | None = None
    _region: Texts | None = None

    @classmethod
    def of(cls, table: Mapping[str, NDArray[Any]]) -> Self:
        texts: dict[str, Any] = {f"_{name}": Texts.in_table(table, name) for name in ("group_name", *_TEXTS)}
        num = len(table["start"])
        numbers: dict[str, Any] = {
            n: table[n] if n in table else np.full(num, default) for n, default in _DEFAULTS.items()
        }
        if "mask" in table:
            texts |= {"_mask": Texts.in_table(table, "mask"), "mask_digest": table["mask_digest"]}
        if "region" in table:
            texts["_region"] = Texts.in_table(table, "region")
        return cls(**numbers, **texts)

    def flip_of(self, row: int) -> float | None:
        """The probability that a row's image is mirrored, None for the recipe's."""
        return _probability(self.flip[row])

    def caption_dropout_of(self, row: int) -> float | None:
        """The probability that a row's caption is dropped, None for the recipe's."""
        return _probability(self.caption_dropout[row])

    def tags_of(self, row: int) -> str:
        """A row's tags as written by `tags.Tags.encoded`; empty if they equal the caption."""
        return self._tags[row]

    def embedding_of(self, row: int) -> str:
        """The file of a row's text embedding, as `Marked.encoded`; empty without one."""
        return self._embedding[row]

    @property
    def embeddings(self) -> tuple[NDArray[Any], ...]:
        """The files of all rows, as arrays for hashing; empty if no row has a text embedding file."""
        texts = self._embedding
        return (texts.blob, texts.offsets) if len(texts.blob) else ()

    def sizes_of(self, row: int) -> list[int] | None:
        """Six numbers that replace those of the placement as conditioning; None without them."""
        line = self._sizes[row]
        return [int(number) for number in line.split(",")] if line else None

    def mask_of(self, row: int) -> Path | None:
        """A row's mask file, None without one."""
        path = self._mask[row] if self._mask is not None else ""
        return Path(path) if path else None

    @property
    def has_regions(self) -> bool:
        """Whether any image has a crop or rotation."""
        return self._region is not None

    def region_of(self, row: int) -> Region | None:
        """The part of a row's image that is used, None for the whole image."""
        text = self._region[row] if self._region is not None else ""
        return Region.decoded(text) if text else None

    def group_name(self, number: int) -> str:
        return self._group_name[number]


def _probability(value: np.float32) -> float | None:
    # the decimal value: 0.1, not 0.10000000149
    return None if math.isnan(value) else float(str(value))


class OverridesBuilder:
    def __init__(self) -> None:
        self._numbers: dict[str, array[Any]] = {name: array(default.dtype.char) for name, default in _DEFAULTS.items()}
        self._texts = {name: TextBuilder() for name in (*_TEXTS, "mask", "region")}
        self._groups = {"": 0}

    def add(self, sample: Sample) -> None:
        values = dict(sample.overrides)
        assert not values.keys() - set(NAMES), f"{sample.key}: no such override: {values.keys() - set(NAMES)}"
        for name, column in self._numbers.items():
            if name == "group":
                column.append(self._groups.setdefault(sample.group, len(self._groups)))
            elif name in _FLAGS:
                column.append(values.get(name) == "true")
            else:
                default: Any = _DEFAULTS[name].item()
                column.append(type(default)(values.get(name, default)))
        for name, texts in self._texts.items():
            texts.append(values.get(name, ""))

    def starts(self) -> NDArray[np.int32]:
        """The first frame of each sample, (n,), −1 if not set."""
        return np.frombuffer(self._numbers["start"], np.int32)

    def columns(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """The columns of rows, by name, for `SampleOverrides.of`."""
        groups = TextBuilder()
        for name in self._groups:
            groups.append(name)
        table = {name: np.frombuffer(self._numbers[name], default.dtype)[rows] for name, default in _DEFAULTS.items()}
        table |= groups.texts().columns("group_name")
        for name in _TEXTS:
            table |= columns.select_texts(self._texts[name].texts(), rows).columns(name)
        regions = columns.select_texts(self._texts["region"].texts(), rows)
        return table | (regions.columns("region") if len(regions.blob) else {})

    def masks(self, rows: NDArray[np.int64]) -> Texts:
        """The mask files of rows, empty for none."""
        return columns.select_texts(self._texts["mask"].texts(), rows)

    def regions(self) -> dict[int, Region]:
        """The regions of samples, by number."""
        texts = self._texts["region"].texts()
        numbers = np.flatnonzero(np.diff(texts.offsets)).tolist()
        return {i: Region.decoded(texts[i]) for i in numbers}


@dataclass(frozen=True, slots=True)
class Marked:
    """A text embedding file of another trainer, as it was when the data set was indexed. mark: its size and time, part
    of the address in the cache; a changed file is imported again."""

    path: Path
    mark: str

    @classmethod
    def of(cls, path: Path) -> Marked:
        """A file in its current state. Raises OSError if it is missing."""
        stat = os.stat(path)
        return cls(path, f"{stat.st_size}-{stat.st_mtime_ns}")

    @property
    def encoded(self) -> str:
        """As text, for a column."""
        return f"{self.mark} {self.path}"

    @classmethod
    def decoded(cls, text: str) -> Marked:
        """The inverse of `encoded`."""
        mark, _, path = text.partition(" ")
        return cls(Path(path), mark)


def overridden_columns(table: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    """The columns in which any sample has an override. Others are not part of the fingerprint, which therefore does not
    change when columns are added."""
    names = [name for name, default in _DEFAULTS.items() if not _is_all(table[name], default)]
    for name in ("group_name", "tags", "sizes"):
        names += [name, f"{name}_offsets"] if len(table[name]) else []
    return (*names, "mask_digest") if "mask_digest" in table else tuple(names)


def _is_all(column: NDArray[Any], default: np.number[Any]) -> bool:
    return np.array_equal(column, np.full(len(column), default), equal_nan=default.dtype.kind == "f")
