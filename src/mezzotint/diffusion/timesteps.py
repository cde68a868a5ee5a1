"""Timesteps by address, drawn on the host: it knows them without asking the device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def draw(addresses: NDArray[np.uint64], low: int, high: int) -> NDArray[np.int64]:
    """Whole numbers in [low, high), evenly, one at each address; equal to low + `draws.below(address, high − low)`.

    addresses: (B,) uint64 of `draws.keys`. 0 ≤ low < high ≤ 2³². Returns (B,) int64.
    """
    assert 0 <= low < high <= 1 << 32, (low, high)
    count, half = np.uint64(high - low), np.uint64(32)
    # (address · count) >> 64 without 128-bit numbers: the address in two halves
    carried = ((addresses & np.uint64(0xFFFFFFFF)) * count) >> half
    above: NDArray[Any] = ((addresses >> half) * count + carried) >> half
    return above.astype(np.int64) + low
