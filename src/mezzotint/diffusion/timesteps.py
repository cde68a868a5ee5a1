"""Timesteps by address, drawn on the host, which needs no value from the device; and how often each is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBERS = 1 << 53
"""Resolution of `draw_shared`: the number of integers that float64 represents exactly."""


def draw(addresses: NDArray[np.uint64], low: int, high: int) -> NDArray[np.int64]:
    """Uniform integers in [low, high), one at each address; equal to low + `draws.below(address, high − low)`.

    addresses: (B,) uint64 of `draws.keys`. 0 ≤ low < high ≤ 2³². Returns (B,) int64.
    """
    assert 0 <= low < high <= 1 << 32, (low, high)
    count, half = np.uint64(high - low), np.uint64(32)
    # (address · count) >> 64 without 128-bit numbers: the address in two halves
    carried = ((addresses & np.uint64(0xFFFFFFFF)) * count) >> half
    above: NDArray[Any] = ((addresses >> half) * count + carried) >> half
    return above.astype(np.int64) + low


def share_table(weights: NDArray[np.float64]) -> NDArray[np.uint64]:
    """The table for `draw_shared`: for each timestep, the 53-bit numbers below which it or an earlier one is drawn.

    weights: (T,), relative frequencies, ≥ 0 and not all 0, with any sum. Returns (T,) uint64, rising.
    """
    assert (weights >= 0).all(), weights
    assert weights.any(), "all weights are 0"
    sums = np.cumsum(weights)  # sequential: the same on every machine
    edges: NDArray[np.uint64] = np.floor(sums / sums[-1] * _NUMBERS).astype(np.uint64)
    edges[np.flatnonzero(weights)[-1] :] = _NUMBERS  # every number has a timestep, however the sum was rounded
    return edges


def draw_shared(addresses: NDArray[np.uint64], table: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Timesteps by their shares, one at each address: the first whose edge is above the address's upper 53 bits.

    addresses: (B,) uint64 of `draws.keys`. table: of `share_table`. Integers are compared, so every machine draws the
    same. A timestep of weight 0 is never drawn. Returns (B,) int64.
    """
    timesteps: NDArray[np.int64] = np.searchsorted(table, addresses >> np.uint64(11), side="right").astype(np.int64)
    return timesteps


def bias_weights(
    strategy: str,
    *,
    multiplier: float = 1.0,
    begin: int = 0,
    end: int | None = None,
    portion: float = 0.25,
    num_timesteps: int = 1000,
) -> NDArray[np.float64]:
    """The probability of each timestep, (T,) float64 with sum 1: equal, except that some timesteps are multiplied.

    Which these are: "earlier", the first ⌊portion · T⌋; "later", as many of the last; "range", from begin (included) to
    end (excluded; None: to the last); "none", no timestep. The factor is `multiplier`, above 0; portion is in [0, 1].
    This is the timestep bias of diffusers' SDXL example, whose "none" draws uniformly by other means, and where a
    portion of 0 means all for "later", with the same result. Raises ValueError for anything else.
    """
    last = num_timesteps if end is None else end
    if not multiplier > 0:
        raise ValueError(f"the multiplier of timesteps must be above 0, got {multiplier:g}")
    if not 0 <= begin <= last <= num_timesteps:
        raise ValueError(f"the range of timesteps must be within 0 to {num_timesteps}, got {begin} to {last}")
    if not 0 <= portion <= 1:
        raise ValueError(f"the portion of timesteps must be from 0 to 1, got {portion:g}")
    count = int(portion * num_timesteps)
    chosen = {
        "none": slice(0, 0),
        "earlier": slice(0, count),
        "later": slice(num_timesteps - count, num_timesteps),
        "range": slice(begin, last),
    }
    if strategy not in chosen:
        raise ValueError(f"unknown bias of timesteps {strategy!r}; choose from {', '.join(chosen)}")
    weights: NDArray[np.float64] = np.ones(num_timesteps)
    weights[chosen[strategy]] *= multiplier
    weights /= weights.sum()
    return weights
