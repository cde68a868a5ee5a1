"""What models of clips on straight paths share: an autoencoder that takes one clip after another, pictures as clips of
one frame."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from mezzotint.families.base import like_parameters
from mezzotint.families.shared.flow import FlowFamily, as_it_is


class ClipFamily(FlowFamily):
    """A model of clips. Pictures (B, 3, H, W) and their latents have no axis of frames."""

    @torch.no_grad()
    def encode_media(self, pixels: Tensor) -> Tensor:
        """See ModelFamily: clips (B, 3, F, H, W) too. Runs in the type and on the device of the VAE's parameters."""
        vae, clips = self._part("vae"), as_clips(pixels)
        count, _, frames, height, width = clips.shape
        sides = ((frames - 1) // self.grid.frames + 1, height // self.grid.pixels, width // self.grid.pixels)
        moments = [pixels.new_empty((0, 2 * self.grid.channels, *sides), dtype=torch.float32)]
        for clip in clips.split(1) if count else ():
            with as_it_is(vae):
                posterior = vae.encode(like_parameters(clip, vae)).latent_dist
            moments.append(self.scaled(posterior.mean.float(), posterior.std.float()))
        whole = torch.cat([part.to(moments[-1].device) for part in moments])
        return whole if pixels.ndim == 5 else whole[:, :, 0]

    @torch.no_grad()
    def decode_media(self, latents: Tensor) -> Tensor:
        """See ModelFamily: of clips too."""
        vae, decoded = self._part("vae"), []
        for clip in as_clips(self.raw(as_clips(latents.float()))).split(1):
            with as_it_is(vae):
                decoded.append(cast(Tensor, self._decoded(vae, like_parameters(clip, vae))).float().clamp(-1.0, 1.0))
        pixels = torch.cat(decoded)
        return pixels if latents.ndim == 5 else pixels[:, :, 0]

    def _decoded(self, vae: Any, latents: Tensor) -> Any:
        return vae.decode(latents).sample


def as_clips(x: Tensor) -> Tensor:
    """Pictures, or their latents, as clips of one frame."""
    return x if x.ndim == 5 else x[:, :, None]
