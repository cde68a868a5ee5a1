"""What flow-matching video models share: an autoencoder that takes one clip at a time, images as clips of one frame."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, cast

import torch
from torch import Tensor

from mezzotint import draws
from mezzotint.diffusion.flow_objective import with_first_frame
from mezzotint.diffusion.objective import StepDraws
from mezzotint.families.base import cast_like_parameters
from mezzotint.families.shared.flow import FlowFamily
from mezzotint.families.shared.folder_family import without_autocast
from mezzotint.stages import Noised


class ClipFamily(FlowFamily):
    """A video model. Images (B, 3, H, W) and their latents have no frame axis."""

    first_frame_prob: float = 0.0
    """The probability that a clip is trained with first-frame conditioning."""

    def training_input(self, noised: Noised, drawn: StepDraws) -> Noised:
        """See ModelFamily: first-frame conditioning of random clips, drawn by address."""
        x_0 = noised.x_0
        if not self.first_frame_prob or drawn.first_frame is None or x_0.ndim != 5 or x_0.shape[2] < 2:
            return noised
        chosen = torch.from_numpy(draws.uniforms(drawn.first_frame) < self.first_frame_prob)
        return with_first_frame(noised, chosen.to(x_0.device, non_blocking=True))

    def token_times(self, noised: Noised) -> Tensor:
        """The time input of each token, (B, n): 0 for a conditioning frame, which has no noise."""
        clips = as_clips(noised.model_input)
        count = self.tokens.count(clips.shape[1:])
        times = noised.model_t[:, None].expand(-1, count)
        if noised.has_first_frame is None:
            return times
        is_first = torch.arange(count, device=times.device) < count // clips.shape[2]
        return times.masked_fill(noised.has_first_frame[:, None] & is_first, 0.0)

    @torch.no_grad()
    def encode_media(self, pixels: Tensor) -> Tensor:
        """See ModelFamily: clips (B, 3, F, H, W) too. Runs in the dtype and on the device of the VAE's parameters."""
        vae, clips = self._part("vae"), as_clips(pixels)
        count, _, frames, height, width = clips.shape
        sides = ((frames - 1) // self.grid.frames + 1, height // self.grid.pixels, width // self.grid.pixels)
        moments = [pixels.new_empty((0, 2 * self.grid.channels, *sides), dtype=torch.float32)]
        for clip in clips.split(1) if count else ():
            with without_autocast(vae):
                posterior = vae.encode(cast_like_parameters(clip, vae)).latent_dist
            moments.append(self.scale_moments(posterior.mean.float(), posterior.std.float()))
        whole = torch.cat([part.to(moments[-1].device) for part in moments])
        return whole if pixels.ndim == 5 else whole[:, :, 0]

    @torch.no_grad()
    def decode_media(self, latents: Tensor) -> Tensor:
        """See ModelFamily: clips too."""
        vae, decoded = self._part("vae"), []
        for clip in as_clips(self.unscale_latents(as_clips(latents.float()))).split(1):
            with without_autocast(vae):
                decoded.append(
                    cast(Tensor, self._decode(vae, cast_like_parameters(clip, vae))).float().clamp(-1.0, 1.0)
                )
        pixels = torch.cat(decoded)
        return pixels if latents.ndim == 5 else pixels[:, :, 0]

    def _decode(self, vae: Any, latents: Tensor) -> Any:
        return vae.decode(latents).sample


def select_samples(noised: Noised, rows: Tensor) -> Noised:
    """A subset of the samples, without `host_level`. rows: (n,) int64 on the device of the samples."""
    without_host = replace(noised, host_level=None)
    values: dict[str, Any] = {field.name: getattr(without_host, field.name) for field in fields(without_host)}
    return replace(without_host, **{name: value[rows] for name, value in values.items() if value is not None})


def as_clips(x: Tensor) -> Tensor:
    """Images, or their latents, as clips of one frame."""
    return x if x.ndim == 5 else x[:, :, None]
