"""Tiling of a long or large clip: temporal chunks one after the other, and within a chunk overlapping spatial tiles
whose edges are blended.

Chunks and tiles are those of Open-Sora-Plan v1.1. Norms and attention see only one tile, so that the result differs
from that of the whole clip; the memory is bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mezzotint.errors import RecipeError

Coder = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Tiling:
    """side: of a tile, in pixels. frames: of a chunk; neighbours share one. overlap: of tiles, as a share of the side.

    pixels, per_latent: pixels and frames per latent, of the autoencoder. Raises RecipeError E1003 for an overlap that
    is not between 0 and 1, or not an integer number of latents: the tiles of pixels and of latents would not match.
    """

    side: int = 256
    frames: int = 65
    overlap: float = 0.25
    pixels: int = 8
    per_latent: int = 4

    def __post_init__(self) -> None:
        assert self.side % self.pixels == 0, self.side
        assert self.frames > 1, self.frames
        assert (self.frames - 1) % self.per_latent == 0, self.frames
        cells = self.side // self.pixels
        if not 0 < self.overlap < 1 or not (self.overlap * cells).is_integer():
            raise RecipeError(
                f"the overlap of tiles must be between 0 and 1 and an integer number of {cells} latents, got "
                f"{self.overlap}; write {min(max(round(self.overlap * cells), 1), cells - 1) / cells}",
                code="E1003",
            )

    @property
    def cells(self) -> int:
        """A tile's side in latents."""
        return self.side // self.pixels

    @property
    def latent_frames(self) -> int:
        """A chunk's latent frames."""
        return (self.frames - 1) // self.per_latent + 1

    def exceeded_by(self, clip: Tensor, *, latents: bool = False) -> bool:
        """Whether a clip (B, C, F, H, W) of pixels, or of latents, is larger than a tile in any direction."""
        frames, side = (self.latent_frames, self.cells) if latents else (self.frames, self.side)
        return clip.shape[2] > frames or max(clip.shape[3:]) > side

    def encode(self, clip: Tensor, coder: Coder) -> Tensor:
        """Moments of a clip, with `coder` applied to each tile."""
        return _through_time(clip, self.frames, lambda part: self._over_plane(part, coder, self.side, self.cells))

    def decode(self, latents: Tensor, coder: Coder) -> Tensor:
        """Pixels of latents, with `coder` applied to each tile."""
        return _through_time(
            latents, self.latent_frames, lambda part: self._over_plane(part, coder, self.cells, self.side)
        )

    def _over_plane(self, part: Tensor, coder: Coder, side: int, coded_side: int) -> Tensor:
        """side: of an input tile. coded_side: of an output tile."""
        stride, blend = round(side * (1 - self.overlap)), round(coded_side * self.overlap)
        kept_side = coded_side - blend
        rows: list[Tensor] = []
        above: list[Tensor] = []
        for top in range(0, part.shape[3], stride):
            tiles: list[Tensor] = []
            for left in range(0, part.shape[4], stride):
                tile = coder(part[..., top : top + side, left : left + side])
                if above:
                    _blend(above[len(tiles)], tile, blend, dim=3)
                if tiles:
                    _blend(tiles[-1], tile, blend, dim=4)
                tiles.append(tile)
            rows.append(torch.cat([tile[..., :kept_side, :kept_side] for tile in tiles], dim=4))
            above = tiles
        return torch.cat(rows, dim=3)


def _through_time(x: Tensor, frames: int, each: Coder) -> Tensor:
    """Applies `each` to chunks of `frames`, of which the last may be shorter; drops the first frame of all but the
    first."""
    pieces = []
    for start in range(0, max(x.shape[2] - 1, 1), frames - 1):
        done = each(x[:, :, start : start + frames])
        pieces.append(done if start == 0 else done[:, :, 1:])
    return torch.cat(pieces, dim=2)


def _blend(before: Tensor, tile: Tensor, extent: int, *, dim: int) -> None:
    """Blends the end of one tile into the start of the next, in place: a blended tile is blended again with the tile
    after it."""
    extent = min(extent, before.shape[dim], tile.shape[dim])
    share = torch.arange(extent, device=tile.device, dtype=tile.dtype) / extent
    share = share.view(-1, *[1] * (tile.ndim - 1 - dim))
    start = tile.narrow(dim, 0, extent)
    start.copy_(before.narrow(dim, before.shape[dim] - extent, extent) * (1 - share) + start * share)
