"""Pyramid noise (Whitaker 2023, "multi-resolution noise for diffusion model training"): noise of smaller and smaller
sizes, enlarged and added, from which a model learns large shapes and brightness as well as detail.

The rules are EveryDream2's; the random numbers are drawn by address. Additions and multiplications are separate and in
a fixed order, so a sample's noise is bitwise identical in every batch and split.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

LEVELS = 10
"""Maximum number of levels; sizes shrink so fast that five or six are used."""


def ratios(uniforms: Sequence[float]) -> tuple[float, ...]:
    """The factor by which each level's sides shrink, in [2, 4), from uniform numbers in [0, 1)."""
    return tuple(2.0 + 2.0 * u for u in uniforms)


def sizes(height: int, width: int, shrinking: Sequence[float]) -> list[tuple[int, int]]:
    """(height, width) of each level's noise, largest first, until a side is 1.

    Level i shrinks the sides of the level before by shrinking[i] to the power of i, rounded down and at least 1. Level
    0 therefore has the full size, and sizes fall super-exponentially.
    """
    levels: list[tuple[int, int]] = []
    for level, ratio in enumerate(shrinking):
        height, width = (max(1, int(side / ratio**level)) for side in (height, width))
        levels.append((height, width))
        if 1 in (height, width):
            break
    return levels


def add_levels(base: Tensor, levels: Sequence[Tensor], discount: float) -> Tensor:
    """The base noise plus every level, enlarged and times discount^level; not normalized to unit deviation.

    base: (B, C, *spatial) float32. levels: (B, C, …, height, width) of `sizes`, otherwise in the shape of base.
    """
    total = base
    for level, small in enumerate(levels):
        total = total + discount**level * _resize_bilinear(small, base.shape[-2], base.shape[-1])
    return total


def normalize_deviation(noise: Tensor) -> Tensor:
    """Divides each sample by its standard deviation (of n − 1). noise: (B, …) float32, at least two elements a sample.

    EveryDream2 divides by the deviation of the whole batch; a sample's deviation depends on no neighbour and no split.
    The sums are pairwise: a library's order of summation depends on the shape and would change the last bits.
    """
    count = noise[0].numel()
    flat = noise.flatten(1)
    centred = flat - (_sum(flat) / count)[:, None]
    deviation = (_sum(centred * centred) / (count - 1)).sqrt()
    return noise / deviation.view(-1, *[1] * (noise.ndim - 1))


def _sum(flat: Tensor) -> Tensor:
    """(B, n) → (B,), by pairwise summation."""
    while flat.shape[1] > 1:
        half, odd = divmod(flat.shape[1], 2)
        added = flat[:, :half] + flat[:, half : 2 * half]
        flat = torch.cat((added, flat[:, -1:]), dim=1) if odd else added
    return flat[:, 0]


def _resize_bilinear(small: Tensor, height: int, width: int) -> Tensor:
    """Bilinear interpolation of the last two dimensions, with align_corners=False."""
    if small.shape[-2:] == (height, width):
        return small
    return _resize_linear(_resize_linear(small, height, -2), width, -1)


def _resize_linear(x: Tensor, size: int, dim: int) -> Tensor:
    """Linear interpolation along one dimension to `size` positions."""
    length = x.shape[dim]
    position = (torch.arange(size, device=x.device, dtype=torch.float32) + 0.5) * (length / size) - 0.5
    position = position.clamp_(0.0, length - 1.0)
    low = position.long()
    share = (position - low).view(-1, 1) if dim == -2 else position - low
    return (1.0 - share) * x.index_select(dim, low) + share * x.index_select(dim, (low + 1).clamp_(max=length - 1))
