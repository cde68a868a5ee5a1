"""What an inpainting model is given beside the noisy latents: the region to fill, and the image without it, as in
diffusers' StableDiffusionInpaintPipeline and FluxFillPipeline."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

MASK, MASKED_IMAGE = "mask", "masked_image"
"""Names in `Condition.images`: the region in pixels (B, 1, H, W), 1 is filled, and the scaled latents of the image
without it (B, C, h, w)."""


def binarize(region: Tensor) -> Tensor:
    """A region in [0, 255], (B, H, W), as zeros and ones, (B, 1, H, W) float32; 1 is filled, from the middle value
    on."""
    return (region[:, None] >= 128).to(torch.float32)


def remove_region(pixels: Tensor, filled: Tensor) -> Tensor:
    """Images (B, 3, H, W) in [−1, 1] with the middle grey, 0, where `filled` (B, 1, H, W) is 1."""
    return pixels * (1.0 - filled)


def take_top_left(filled: Tensor, like: Tensor) -> Tensor:
    """The region (B, 1, h, w) of latents: each takes its top left pixel, as nearest neighbour does. like: latents
    (B, C, h, w)."""
    side = _side(filled, like)
    return filled[..., ::side, ::side]


def pack_pixels(filled: Tensor, like: Tensor) -> Tensor:
    """The region of all pixels of each latent, in row-major order, (B, side², h, w). like: latents (B, C, h, w)."""
    return functional.pixel_unshuffle(filled, _side(filled, like))


def _side(filled: Tensor, like: Tensor) -> int:
    """How many pixels high and wide a latent is."""
    side = filled.shape[-1] // like.shape[-1]
    assert filled.shape[-2:] == (side * like.shape[-2], side * like.shape[-1]), (filled.shape, like.shape)
    return side
