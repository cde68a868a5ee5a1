"""What an inpainting model is given beside the noisy latents: the region to fill, and the image without it, as in
diffusers' StableDiffusionInpaintPipeline."""

from __future__ import annotations

import torch
from torch import Tensor

MASK, MASKED_IMAGE = "mask", "masked_image"
"""Names in `Condition.images`."""


def binarize(region: Tensor) -> Tensor:
    """A region in [0, 255], (B, H, W), as zeros and ones, (B, 1, H, W) float32; 1 is filled, from the middle value
    on."""
    return (region[:, None] >= 128).to(torch.float32)


def without_region(pixels: Tensor, filled: Tensor) -> Tensor:
    """Images (B, 3, H, W) in [−1, 1] with the middle grey, 0, where `filled` (B, 1, H, W) is 1."""
    return pixels * (1.0 - filled)


def to_latents(filled: Tensor, masked_image: Tensor) -> dict[str, Tensor]:
    """`Condition.images` of a model. filled: (B, 1, H, W), of which each latent takes its top left pixel (nearest
    neighbour). masked_image: the latents (B, C, h, w) of `without_region`, scaled."""
    (height, width), (h, w) = filled.shape[-2:], masked_image.shape[-2:]
    assert (height % h, width % w) == (0, 0), (filled.shape, masked_image.shape)
    return {MASK: filled[..., :: height // h, :: width // w], MASKED_IMAGE: masked_image}
