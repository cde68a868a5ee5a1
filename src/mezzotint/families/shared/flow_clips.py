"""What models of clips on straight paths share: an autoencoder that takes one clip after another, pictures as clips of
one frame."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, cast

import torch
from torch import Tensor

from mezzotint import draws
from mezzotint.diffusion.flow_objective import with_first_frame
from mezzotint.diffusion.objective import StepDraws
from mezzotint.families.base import like_parameters
from mezzotint.families.shared.flow import FlowFamily
from mezzotint.families.shared.folder_family import without_autocast
from mezzotint.stages import Noised


class ClipFamily(FlowFamily):
    """A model of clips. Pictures (B, 3, H, W) and their latents have no axis of frames."""

    begun_share: float = 0.0
    """The share of clips that are trained with their first frame given."""

    def begun(self, noised: Noised, drawn: StepDraws) -> Noised:
        """See ModelFamily: of a share of clips, drawn by address, the first latent frame."""
        x_0 = noised.x_0
        if not self.begun_share or drawn.first_frame is None or x_0.ndim != 5 or x_0.shape[2] < 2:
            return noised
        chosen = torch.from_numpy(draws.uniforms(drawn.first_frame) < self.begun_share)
        return with_first_frame(noised, chosen.to(x_0.device, non_blocking=True))

    def token_times(self, noised: Noised) -> Tensor:
        """What is told of each token, (B, n): of a frame that is given that it has no noise."""
        clips = as_clips(noised.model_input)
        count = self.tokens.count(clips.shape[1:])
        times = noised.model_t[:, None].expand(-1, count)
        if noised.begun is None:
            return times
        is_first = torch.arange(count, device=times.device) < count // clips.shape[2]
        return times.masked_fill(noised.begun[:, None] & is_first, 0.0)

    @torch.no_grad()
    def encode_media(self, pixels: Tensor) -> Tensor:
        """See ModelFamily: clips (B, 3, F, H, W) too. Runs in the type and on the device of the VAE's parameters."""
        vae, clips = self._part("vae"), as_clips(pixels)
        count, _, frames, height, width = clips.shape
        sides = ((frames - 1) // self.grid.frames + 1, height // self.grid.pixels, width // self.grid.pixels)
        moments = [pixels.new_empty((0, 2 * self.grid.channels, *sides), dtype=torch.float32)]
        for clip in clips.split(1) if count else ():
            with without_autocast(vae):
                posterior = vae.encode(like_parameters(clip, vae)).latent_dist
            moments.append(self.scaled(posterior.mean.float(), posterior.std.float()))
        whole = torch.cat([part.to(moments[-1].device) for part in moments])
        return whole if pixels.ndim == 5 else whole[:, :, 0]

    @torch.no_grad()
    def decode_media(self, latents: Tensor) -> Tensor:
        """See ModelFamily: of clips too."""
        vae, decoded = self._part("vae"), []
        for clip in as_clips(self.raw(as_clips(latents.float()))).split(1):
            with without_autocast(vae):
                decoded.append(cast(Tensor, self._decoded(vae, like_parameters(clip, vae))).float().clamp(-1.0, 1.0))
        pixels = torch.cat(decoded)
        return pixels if latents.ndim == 5 else pixels[:, :, 0]

    def _decoded(self, vae: Any, latents: Tensor) -> Any:
        return vae.decode(latents).sample


def rows_of(noised: Noised, rows: Tensor) -> Noised:
    """Some samples alone, without what the host knows of them. rows: (n,) int64 on the device of the samples."""
    alone = replace(noised, host_level=None)
    values: dict[str, Any] = {field.name: getattr(alone, field.name) for field in fields(alone)}
    return replace(alone, **{name: value[rows] for name, value in values.items() if value is not None})


def as_clips(x: Tensor) -> Tensor:
    """Pictures, or their latents, as clips of one frame."""
    return x if x.ndim == 5 else x[:, :, None]
