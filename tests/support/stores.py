"""Row stores with small rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mezzotint.data.cache import store as cache
from mezzotint.data.cache.store import Store

SHAPE = (4, 3)


def addresses(numbers: range | list[int]) -> NDArray[np.uint8]:
    rows = [np.random.Generator(np.random.Philox(key=n)).bytes(32) for n in numbers]
    return cache.as_addresses(rows)


def rows(numbers: range | list[int]) -> Tensor:
    return torch.stack([torch.full(SHAPE, float(n)) + torch.arange(12).reshape(SHAPE) / 16 for n in numbers])


def open_store(folder: Path, dtype: cache.Dtype = "fp32") -> Store:
    return Store(folder, shape=SHAPE, dtype=dtype)


def filled(folder: Path, numbers: range | list[int]) -> Store:
    store = open_store(folder)
    store.append(addresses(numbers), rows(numbers))
    return store


def file_of(store: Store, ending: str) -> Path:
    (path,) = store.folder.glob(f"*{ending}")
    return path


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)
