"""What an image-to-video model is given beside the noisy latents: the clip's first frame with grey frames after it, and
which frames are given, as in diffusers' WanImageToVideoPipeline."""

from __future__ import annotations

import torch
from torch import Tensor

from mezzotint.settings.sections.conditions import FIRST_FRAME as FIRST_FRAME

VISION = "first_frame_vision"
"""`FIRST_FRAME` and this are names in `Condition.images`: scaled latents (B, C, f, h, w) of the first frame with grey
ones after it, and of models with an image encoder its hidden states, (B, tokens · width)."""


def hold(images: Tensor, frames: int) -> Tensor:
    """Images (B, 3, H, W) in [−1, 1] as clips (B, 3, `frames`, H, W): after the image middle grey, 0."""
    clips = images[:, :, None]
    return torch.cat([clips, torch.zeros_like(clips).expand(-1, -1, frames - 1, -1, -1)], dim=2)


def mask_given(latents: Tensor, frames_per_latent: int) -> Tensor:
    """Which frames are given, (B, frames_per_latent, f, h, w): 1 in the first latent frame, which has only one frame
    and counts as that many, 0 after it. latents: (B, C, f, h, w)."""
    mask = latents.new_zeros(len(latents), frames_per_latent, *latents.shape[2:])
    mask[:, :, 0] = 1.0
    return mask
