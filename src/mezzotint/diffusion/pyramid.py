"""Pyramid noise (Whitaker 2023, "multi-resolution noise for diffusion model training"): noise of ever smaller sizes,
enlarged and added, so that a model learns large shapes and brightness as well as detail.

The rules are EveryDream2's; the draws are ours, by address. Everything is separate additions and multiplications in a
fixed order, so that a sample's noise is the same to the last bit in every batch and split.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LEVELS = 10
"""The most levels; sizes fall so fast that five or six are made."""


def ratios(uniforms: Sequence[float]) -> tuple[float, ...]:
    """By how much each level's sides shrink, in [2, 4), from even numbers in [0, 1)."""
    return tuple(2.0 + 2.0 * u for u in uniforms)


def sizes(height: int, width: int, shrinking: Sequence[float]) -> list[tuple[int, int]]:
    """(height, width) of each level's noise, largest first, until a side is 1.

    Level i shrinks the sides of the level before by shrinking[i] to the power of i, rounded down and at least 1. So
    level 0 has the full size, and sizes fall super-exponentially.
    """
    levels: list[tuple[int, int]] = []
    for level, ratio in enumerate(shrinking):
        height, width = (max(1, int(side / ratio**level)) for side in (height, width))
        levels.append((height, width))
        if 1 in (height, width):
            break
    return levels


def mixed(base: Tensor, levels: Sequence[Tensor], discount: float) -> Tensor:
    """The base noise and every level, enlarged and times discount^level; not brought to unit deviation.

    base: (B, C, *spatial) float32. levels: (B, C, …, height, width) of `sizes`; other dimensions are base's.
    """
    total = base
    for level, small in enumerate(levels):
        total = total + discount**level * _enlarged(small, base.shape[-2], base.shape[-1])
    return total


def of_unit_deviation(noise: Tensor) -> Tensor:
    """Each sample divided by its own standard deviation (of n − 1). noise: (B, …) float32, two elements a sample at
    least.

    EveryDream2 divides by that of the whole batch; a sample's own depends on no neighbour and no split. The sums add
    halves to halves: another order of summation, as a library chooses by shape, would give other last bits.
    """
    count = noise[0].numel()
    flat = noise.flatten(1)
    centred = flat - (_sum(flat) / count)[:, None]
    deviation = (_sum(centred * centred) / (count - 1)).sqrt()
    return noise / deviation.view(-1, *[1] * (noise.ndim - 1))


def _sum(flat: Tensor) -> Tensor:
    """(B, n) → (B,), by pairwise addition."""
    while flat.shape[1] > 1:
        half, odd = divmod(flat.shape[1], 2)
        added = flat[:, :half] + flat[:, half : 2 * half]
        flat = torch.cat((added, flat[:, -1:]), dim=1) if odd else added
    return flat[:, 0]


def _enlarged(small: Tensor, height: int, width: int) -> Tensor:
    """Bilinear interpolation of the last two dimensions, pixels taken as areas (align_corners off)."""
    if small.shape[-2:] == (height, width):
        return small
    return _stretched(_stretched(small, height, -2), width, -1)


def _stretched(x: Tensor, size: int, dim: int) -> Tensor:
    """Linear interpolation along one dimension to `size` places."""
    length = x.shape[dim]
    place = (torch.arange(size, device=x.device, dtype=torch.float32) + 0.5) * (length / size) - 0.5
    place = place.clamp_(0.0, length - 1.0)
    low = place.long()
    share = (place - low).view(-1, 1) if dim == -2 else place - low
    return (1.0 - share) * x.index_select(dim, low) + share * x.index_select(dim, (low + 1).clamp_(max=length - 1))
