"""The catalogue: a data set as columns on disk. (skeleton; being written)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mezzotint.recipe.data import DataSettings


@dataclass(frozen=True, slots=True)
class DataReport:
    used: int
    skipped: tuple[tuple[str, str], ...]
    left_out: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """One row a sample; arrays are memory maps."""

    roots: tuple[Path, ...]
    folder: Path
    width: NDArray[np.int32]
    height: NDArray[np.int32]
    digest: NDArray[np.uint8]
    key_hash: NDArray[np.uint64]
    repeats: NDArray[np.float32]
    weight: NDArray[np.float32]
    conversions: NDArray[np.uint16]
    fingerprint: str
    report: DataReport

    def __len__(self) -> int:
        raise NotImplementedError

    def key(self, row: int) -> str:
        raise NotImplementedError

    def path(self, row: int) -> Path:
        raise NotImplementedError

    def captions(self, row: int) -> tuple[str, ...]:
        raise NotImplementedError

    def captions_of(self, rows: ArrayLike) -> list[tuple[str, ...]]:
        raise NotImplementedError

    def verify(self, row: int) -> bool:
        raise NotImplementedError

    def split(self, holdout: object, seed: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        raise NotImplementedError


def build(
    settings: DataSettings,
    folder: Path,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Catalogue:
    raise NotImplementedError
