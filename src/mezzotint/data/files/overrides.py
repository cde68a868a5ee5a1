"""What a sample has of its own instead of the recipe's: its chance of a flip and of a dropped caption, whether it is a
class picture, whether its tags are shuffled, the name it is batched under, its rating, its tags with their weights.
Columns beside those of the catalogue.

A dataset format says them as `Sample.group` and as texts in `Sample.overrides`, under the names in `NAMES`.
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
from mezzotint.stages import Sample

NAMES = ("flip", "caption_dropout", "shuffle_tags", "rating", "tags", "start", "embedding", "sizes", "prior", "mask")
"""What `Sample.overrides` may hold: a chance 0 to 1, a chance, "true", a number above 0, `tags.Tags.encoded`, the
first frame of a clip that is seen, a file of text embeddings with its size and time (`Marked`), six
numbers: original height and width, crop top and left, target height and width, where they are not those of the
placement, "true" for a class picture, the path of a mask file."""

_USUAL: Mapping[str, np.number[Any]] = {
    "flip": np.float32(math.nan),
    "caption_dropout": np.float32(math.nan),
    "shuffle_tags": np.uint8(0),
    "rating": np.float32(1),
    "group": np.int32(0),
    "start": np.int32(-1),
    "prior": np.uint8(0),
}
"""The columns of numbers: their types, and what samples have that have nothing of their own."""

_TEXTS = ("tags", "embedding", "sizes")
_FLAGS = ("shuffle_tags", "prior")


@dataclass(frozen=True, slots=True)
class SampleOverrides:
    """Columns of n rows. flip, caption_dropout: float32, NaN for the recipe's. shuffle_tags: uint8, 1 where tags are
    shuffled whatever the recipe says. rating: float32. group: int32, 0 for none, else a number of `group_name`. start:
    int32, the frame that the clip's entry begins at, −1 without one. prior: uint8, 1 of a class picture; an index that
    was made before there were any has none. mask_digest: (n, 32) uint8, SHA-256 of the mask file, zeros without one;
    None where no sample has one."""

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

    @classmethod
    def of(cls, table: Mapping[str, NDArray[Any]]) -> Self:
        texts: dict[str, Any] = {f"_{name}": Texts.in_table(table, name) for name in ("group_name", *_TEXTS)}
        num = len(table["start"])
        numbers: dict[str, Any] = {n: table[n] if n in table else np.full(num, usual) for n, usual in _USUAL.items()}
        if "mask" in table:
            texts |= {"_mask": Texts.in_table(table, "mask"), "mask_digest": table["mask_digest"]}
        return cls(**numbers, **texts)

    def flip_of(self, row: int) -> float | None:
        """The chance that a row's picture is mirrored, None for the recipe's."""
        return _chance(self.flip[row])

    def caption_dropout_of(self, row: int) -> float | None:
        """The chance that a row's caption is dropped, None for the recipe's."""
        return _chance(self.caption_dropout[row])

    def tags_of(self, row: int) -> str:
        """A row's tags as `tags.Tags.encoded` writes them; empty where the caption says as much."""
        return self._tags[row]

    def embedding_of(self, row: int) -> str:
        """The file of a row's text embedding, marked (`Marked`); empty without one."""
        return self._embedding[row]

    @property
    def embeddings(self) -> tuple[NDArray[Any], ...]:
        """Of all rows, as arrays that change with any of them; none where no row has a file of a text embedding."""
        texts = self._embedding
        return (texts.blob, texts.offsets) if len(texts.blob) else ()

    def sizes_of(self, row: int) -> list[int] | None:
        """The six numbers that a row's model is told instead of those of its placement, None for those."""
        line = self._sizes[row]
        return [int(number) for number in line.split(",")] if line else None

    def mask_of(self, row: int) -> Path | None:
        """A row's mask file, None without one."""
        path = self._mask[row] if self._mask is not None else ""
        return Path(path) if path else None

    def group_name(self, number: int) -> str:
        return self._group_name[number]


def _chance(value: np.float32) -> float | None:
    # as it was written: 0.1 and not 0.10000000149
    return None if math.isnan(value) else float(str(value))


class OverridesBuilder:
    def __init__(self) -> None:
        self._numbers: dict[str, array[Any]] = {name: array(usual.dtype.char) for name, usual in _USUAL.items()}
        self._texts = {name: TextBuilder() for name in (*_TEXTS, "mask")}
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
                usual: Any = _USUAL[name].item()
                column.append(type(usual)(values.get(name, usual)))
        for name, texts in self._texts.items():
            texts.append(values.get(name, ""))

    def starts(self) -> NDArray[np.int32]:
        """The first frame of each sample, (n,), −1 where none is said."""
        return np.frombuffer(self._numbers["start"], np.int32)

    def columns(self, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """The columns of some rows, by name, as `SampleOverrides.of` takes them."""
        groups = TextBuilder()
        for name in self._groups:
            groups.append(name)
        table = {name: np.frombuffer(self._numbers[name], usual.dtype)[rows] for name, usual in _USUAL.items()}
        table |= groups.texts().columns("group_name")
        for name in _TEXTS:
            table |= columns.pick(self._texts[name].texts(), rows).columns(name)
        return table

    def masks(self, rows: NDArray[np.int64]) -> Texts:
        """The mask files of some rows, empty for none."""
        return columns.pick(self._texts["mask"].texts(), rows)


@dataclass(frozen=True, slots=True)
class Marked:
    """A file of a text embedding that another trainer has made, as it was when the data set was indexed. mark: its size
    and time, a part of the address under which it is taken over, so that a file that is made anew is taken over
    anew."""

    path: Path
    mark: str

    @classmethod
    def of(cls, path: Path) -> Marked:
        """A file as it is now. Raises OSError where there is none."""
        stat = os.stat(path)
        return cls(path, f"{stat.st_size}-{stat.st_mtime_ns}")

    @property
    def encoded(self) -> str:
        """As text, for a column."""
        return f"{self.mark} {self.path}"

    @classmethod
    def decoded(cls, text: str) -> Marked:
        """The reverse of `encoded`."""
        mark, _, path = text.partition(" ")
        return cls(Path(path), mark)


def used(table: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    """The columns in which any sample has something of its own: a data set without such is the data set it was before
    there were these columns."""
    names = [name for name, usual in _USUAL.items() if not _is_all(table[name], usual)]
    for name in ("group_name", "tags", "sizes"):
        names += [name, f"{name}_offsets"] if len(table[name]) else []
    return (*names, "mask_digest") if "mask_digest" in table else tuple(names)


def _is_all(column: NDArray[Any], usual: np.number[Any]) -> bool:
    return np.array_equal(column, np.full(len(column), usual), equal_nan=usual.dtype.kind == "f")
