"""Positions of tokens: the tables that LatteT2V adds to its tokens, and the rotations of rotary positions.

A table is computed where it is used, on the device, only from sizes: it is not part of the weights, it supports every
size, and a network on the meta device needs no initialisation of it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Rotation(NamedTuple):
    """Rotary positions of n tokens: cos, sin (n, P, D/P), where each of P parts of a head is rotated by its own
    index."""

    cos: Tensor
    sin: Tensor


def sinusoids(positions: Tensor, width: int) -> Tensor:
    """sin(p ω_j), then cos(p ω_j), with ω_j = 10000^(−2j/width) (Vaswani et al. 2017, arXiv:1706.03762, section 3.5).

    positions: (n,). Computed in float64; returns (n, width) float32.
    """
    j = torch.arange(width // 2, dtype=torch.float64, device=positions.device)
    angles = positions.double()[:, None] / 10000 ** (j / (width / 2))
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()


def plane(grid: tuple[int, int], width: int, *, base: int, scale: float, device: torch.device | str) -> Tensor:
    """The 2D table (h·w, width) float32, row by row: the first half of the channels encodes the column, the second the
    row.

    grid: rows and columns of patches. Indices are scaled, so that any grid spans 0 … base, and divided by scale.
    """
    rows, columns = (torch.arange(n, dtype=torch.float32, device=device) / (n / base) / scale for n in grid)
    by_row = sinusoids(rows, width // 2)[:, None].expand(-1, grid[1], -1)
    by_column = sinusoids(columns, width // 2)[None].expand(grid[0], -1, -1)
    return torch.cat([by_column, by_row], dim=2).flatten(0, 1)


def time(frames: int, width: int, *, scale: float, device: torch.device | str) -> Tensor:
    """The temporal table (f, width) float32: frame numbers divided by scale."""
    return sinusoids(torch.arange(frames, dtype=torch.float32, device=device) / scale, width)


def plane_rotation(grid: tuple[int, int], head: int, *, scale: float, device: torch.device | str) -> Rotation:
    """Rotations of h·w patches, row by row: the first half of a head by the row, the second by the column."""
    rows, columns = (torch.arange(n, device=device) for n in grid)
    indices = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), dim=-1).flatten(0, 1)
    return rotation(indices, head, scale=scale)


def time_rotation(frames: int, head: int, *, scale: float, device: torch.device | str) -> Rotation:
    """Rotations of f frames: the whole head by the frame number."""
    return rotation(torch.arange(frames, device=device)[:, None], head, scale=scale)


def rotation(indices: Tensor, head: int, *, scale: float) -> Rotation:
    """cos and sin of the angles p · 10000^(−2j/D) (Su et al. 2021, arXiv:2104.09864), float32; D = head/P.

    indices: (n, P) integers. They are divided by scale and truncated to integers, as in LatteT2V: with scale 2 they are
    0, 0, 1, 1, ….
    """
    size = head // indices.shape[1]
    turns = 10000 ** (torch.arange(0, size, 2, dtype=torch.float32, device=indices.device) / size)
    whole = (indices / scale).to(torch.int64).float()
    angles = (whole[..., None] / turns).repeat(1, 1, 2)
    return Rotation(angles.cos(), angles.sin())


def rotate(x: Tensor, by: Rotation) -> Tensor:
    """Rotates tokens. x: (…, n, D), the first half of each part is paired with its second half. Returns its shape and
    dtype."""
    parts: Tensor = x.unflatten(-1, by.cos.shape[1:])
    first, second = parts.chunk(2, dim=-1)
    turned = torch.cat([-second, first], dim=-1)
    return (parts * by.cos.to(x.dtype) + turned * by.sin.to(x.dtype)).flatten(-2)
