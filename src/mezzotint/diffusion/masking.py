"""Masked loss: the weight of each latent of an image, from a mask of its pixels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def pool_mask(mask: Tensor, height: int, width: int) -> Tensor:
    """The mean of a pixel mask over each latent: (B, H, W) uint8, 255 for full weight → (B, h, w) float32 in [0, 1]. H
    and W are multiples of h and w. The sums are of integers, so the result is bitwise identical on every device."""
    down, across = mask.shape[1] // height, mask.shape[2] // width
    assert mask.shape[1:] == (height * down, width * across), (mask.shape, height, width)
    sums: Tensor = mask.to(torch.int32).unflatten(2, (width, across)).unflatten(1, (height, down)).sum(dim=(2, 4))
    return sums.to(torch.float32).div(255 * down * across)


@dataclass(frozen=True, slots=True)
class LossMask:
    """background: the weight of masked-out latents. keeps_mean: whether weights are divided by their mean, which makes
    the error of an image Σ w e / Σ w; otherwise it is Σ w e over the number of latents."""

    background: float = 0.0
    keeps_mean: bool = True

    def weights(self, mask: Tensor | None, x_0: Tensor) -> Tensor | None:
        """The weight of each latent, (B, 1, …, h, w) with as many dimensions as the latents x_0 (B, C, …, h, w); None
        without a mask. mask: of a batch. An empty mask gives weights of 0."""
        if mask is None:
            return None
        mask = mask.to(x_0.device, non_blocking=True)
        if mask.dtype == torch.uint8:
            mask = pool_mask(mask, *x_0.shape[-2:])
        weights = torch.lerp(torch.full_like(mask, self.background), torch.ones_like(mask), mask)
        if self.keeps_mean:
            weights = weights / weights.mean(dim=(1, 2), keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
        return weights.reshape(len(x_0), *[1] * (x_0.ndim - 3), *weights.shape[1:])
