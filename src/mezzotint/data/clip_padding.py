"""Clips of different sizes in one batch, as Open-Sora-Plan joins them: padded at the end, the bottom and the right,
with a mask that says which latents are real.

Batches made of buckets need neither: all their samples have one size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from mezzotint.shapes import Size


def padded(clips: Sequence[Tensor]) -> Tensor:
    """(3, F, H, W) each → (B, 3, F', H', W'), the largest of each side; what is added is 0, the middle grey."""
    sides = [max(clip.shape[dim] for clip in clips) for dim in (1, 2, 3)]
    return torch.stack([_enlarged(clip, sides) for clip in clips])


def latent_mask(sizes: Sequence[Size], whole: Size, *, pixels: int = 8, frames: int = 4) -> Tensor:
    """Which latents hold something of their clip: (B, f, h, w) float32, 1 or 0.

    sizes: of the clips before padding. whole: the size they were padded to. pixels, frames: of a latent; a latent that
    is begun counts, and frames follow the law of causal autoencoders, the first frame by itself.
    """
    f, h, w = _cells(whole, pixels, frames)
    mask = torch.zeros(len(sizes), f, h, w)
    for line, size in zip(mask, sizes, strict=True):
        f, h, w = _cells(size, pixels, frames)
        line[:f, :h, :w] = 1
    return mask


def joined(clips: Sequence[Tensor], stills: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Clips with the pictures that are trained beside them: pixels (B, 3, F' + I, H', W') and mask (B, f + I, h, w),
    pictures after frames.

    clips: (3, F, H, W) each. stills: (3, I, H, W) each, I the same for all, I = 0 for none; pictures are padded to the
    size of the clips, which they do not exceed.
    """
    pixels = padded(clips)
    _, _, num, height, width = pixels.shape
    counts = {still.shape[1] for still in stills}
    assert len(stills) == len(clips)
    assert len(counts) == 1, f"pictures of each clip: {sorted(counts)}"
    count = counts.pop()
    added = torch.stack([_enlarged(still, [count, height, width]) for still in stills])
    mask = latent_mask([_size(clip) for clip in clips], Size(width, height, num))
    each = latent_mask([Size(still.shape[3], still.shape[2]) for still in stills], Size(width, height))
    return torch.cat([pixels, added], dim=2), torch.cat([mask, each.expand(-1, count, -1, -1)], dim=1)


def _enlarged(clip: Tensor, sides: Sequence[int]) -> Tensor:
    assert all(side >= clip.shape[dim] for dim, side in enumerate(sides, start=1)), f"{tuple(clip.shape)} in {sides}"
    more = [side - clip.shape[dim] for dim, side in enumerate(sides, start=1)]
    return functional.pad(clip, (0, more[2], 0, more[1], 0, more[0]))


def _size(clip: Tensor) -> Size:
    return Size(clip.shape[3], clip.shape[2], clip.shape[1])


def _cells(size: Size, pixels: int, frames: int) -> tuple[int, int, int]:
    return 1 - (1 - size.frames) // frames, -(-size.height // pixels), -(-size.width // pixels)
