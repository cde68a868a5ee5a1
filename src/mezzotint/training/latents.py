"""Where a batch's clean latents come from: the cache, the posterior's stored moments, or the pixels. Those of stills
that are joined to clips lie behind the clips' frames."""

from __future__ import annotations

import torch
from torch import Tensor

from mezzotint.diffusion import noise
from mezzotint.families.base import ModelFamily, posterior_sample
from mezzotint.stages import Batch


def latents_of(family: ModelFamily, batch: Batch, device: torch.device) -> Tensor:
    """x_0 of a batch (B, C, …), scaled: as cached, drawn from cached moments, or encoded from pixels. No gradient.

    With B·I stills, those of a sample one after the other, (B, C, f + I, h, w): the clip's frames, then its stills.
    """
    x_0 = _of_one(family, batch, device)
    if batch.stills is None or not batch.size:
        return x_0
    stills = _of_one(family, batch.stills, device)
    stills = stills if stills.ndim == x_0.ndim else stills[:, :, None]
    return torch.cat([x_0, stills.unflatten(0, (len(x_0), -1)).transpose(1, 2).flatten(2, 3)], dim=2)


def _of_one(family: ModelFamily, batch: Batch, device: torch.device) -> Tensor:
    if batch.latents is not None:
        return batch.latents.to(device, non_blocking=True)
    if batch.moments is not None:
        moments = batch.moments.to(device, non_blocking=True)
    else:
        assert batch.pixels is not None
        moments = family.encode_media(batch.pixels.to(device, non_blocking=True))
    shape = (moments.shape[1] // 2, *moments.shape[2:])
    return posterior_sample(moments, noise.normal(batch.posterior_keys.to(device, non_blocking=True), shape))
