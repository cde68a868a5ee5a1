"""The causal video autoencoder of Open-Sora-Plan v1.1 (CausalVAEModel_4x8x8): n frames become (n − 1)/4 + 1 latent
frames of an eighth of the height and width.

An image is a clip of one frame. Tensor names are those of the released weights.
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from mezzotint.compat.open_sora_plan.nets import _causal_layers as layers
from mezzotint.compat.open_sora_plan.nets._causal_layers import as_clip, as_frames
from mezzotint.compat.open_sora_plan.nets._causal_tiling import Tiling
from mezzotint.compat.open_sora_plan.nets._configs import CausalVAEConfig

__all__ = ["CausalVAE", "CausalVAEConfig", "Tiling", "posterior"]


class _DownLevel(nn.Module):
    """Residual blocks, then half the size, then half the frames."""

    def __init__(self, inputs: int, outputs: int, config: CausalVAEConfig, level: int) -> None:
        super().__init__()
        self.flat = config.flat[level]
        self.block = nn.ModuleList(
            layers.ResnetBlock(inputs if i == 0 else outputs, outputs, flat=self.flat)
            for i in range(config.num_res_blocks)
        )
        self.downsample = layers.Downsample(outputs) if config.shrinks[level] else None
        self.time_downsample = layers.TimeDownsample(outputs) if config.shrinks_time[level] else None

    def forward(self, x: Tensor) -> Tensor:
        batch = len(x)
        x = as_frames(x) if self.flat else x
        for block in self.block:
            x = block(x)
        if self.downsample is not None:
            x = self.downsample(x if self.flat else as_frames(x))
        x = as_clip(x, batch) if x.ndim == 4 else x
        return x if self.time_downsample is None else self.time_downsample(x)


class _UpLevel(nn.Module):
    """Residual blocks, then twice the size, then twice the frames."""

    def __init__(self, inputs: int, outputs: int, config: CausalVAEConfig, level: int) -> None:
        super().__init__()
        self.block = nn.ModuleList(
            layers.ResnetBlock(inputs if i == 0 else outputs, outputs, flat=False)
            for i in range(config.num_res_blocks + 1)
        )
        self.upsample = layers.SpatialUpsample2x(outputs) if config.grows[level] else None
        self.time_upsample = layers.TimeUpsample(outputs) if config.grows_time[level] else None

    def forward(self, x: Tensor) -> Tensor:
        for block in self.block:
            x = block(x)
        x = x if self.upsample is None else self.upsample(x)
        return x if self.time_upsample is None else self.time_upsample(x)


class _Middle(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block_1 = layers.ResnetBlock(channels, channels, flat=False)
        self.attn_1 = layers.FrameAttention(channels)
        self.block_2 = layers.ResnetBlock(channels, channels, flat=False)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.block_2(self.attn_1(self.block_1(x))))


class _Encoder(nn.Module):
    def __init__(self, config: CausalVAEConfig) -> None:
        super().__init__()
        widths = [config.hidden_size * factor for factor in (1, *config.hidden_size_mult)]
        self.conv_in = nn.Conv2d(3, config.hidden_size, 3, padding=1)
        self.down = nn.ModuleList(
            _DownLevel(before, after, config, level) for level, (before, after) in enumerate(pairwise(widths))
        )
        self.mid = _Middle(widths[-1])
        self.norm_out = layers.Norm(widths[-1])
        self.conv_out = layers.CausalConv3d(widths[-1], 2 * config.z_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = as_clip(self.conv_in(as_frames(x)), len(x))
        for level in self.down:
            x = level(x)
        return cast(Tensor, self.conv_out(layers.apply_silu(self.norm_out(self.mid(x)))))


class _Decoder(nn.Module):
    """Its levels are numbered from the finest, and run from the last to the first."""

    def __init__(self, config: CausalVAEConfig) -> None:
        super().__init__()
        widths = [config.hidden_size * factor for factor in config.hidden_size_mult]
        self.conv_in = layers.CausalConv3d(config.z_channels, widths[-1], 3, padding=1)
        self.mid = _Middle(widths[-1])
        self.up = nn.ModuleList(
            _UpLevel(before, after, config, level)
            for level, (before, after) in enumerate(zip([*widths[1:], widths[-1]], widths, strict=True))
        )
        self.norm_out = layers.Norm(widths[0])
        self.conv_out = layers.CausalConv3d(widths[0], 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.mid(self.conv_in(x))
        for level in reversed(self.up):
            x = level(x)
        return cast(Tensor, self.conv_out(layers.apply_silu(self.norm_out(x))))


class CausalVAE(nn.Module):
    """Clips to latents and back. tiling: how clips that are larger than a tile are split; None processes them as a
    whole."""

    def __init__(self, config: CausalVAEConfig) -> None:
        super().__init__()
        self.config = config
        self.tiling: Tiling | None = None
        self.encoder = _Encoder(config)
        self.decoder = _Decoder(config)
        self.quant_conv = layers.CausalConv3d(2 * config.z_channels, 2 * config.embed_dim, 1)
        self.post_quant_conv = layers.CausalConv3d(config.embed_dim, config.z_channels, 1)

    def latent_frames(self, frames: int) -> int:
        """(n − 1)/4 + 1, rounded down: 1 → 1, 17 → 5, 65 → 17. Decoding returns 4k + 1 frames."""
        return (frames - 1) // self.config.frames + 1

    def encode(self, pixels: Tensor) -> Tensor:
        """Pixels (B, 3, F, H, W) in [−1, 1], H and W multiples of 8 → moments (B, 8, f, h, w): mean, then the
        logarithm of the variance, unscaled and unclamped; see `posterior`."""
        if self.tiling is not None and self.tiling.exceeded_by(pixels):
            return self.tiling.encode(pixels, self._encode_whole)
        return self._encode_whole(pixels)

    def decode(self, latents: Tensor) -> Tensor:
        """Unscaled latents (B, 4, f, h, w) → pixels (B, 3, 4(f − 1) + 1, 8h, 8w), about [−1, 1], not clamped."""
        if self.tiling is not None and self.tiling.exceeded_by(latents, latents=True):
            return self.tiling.decode(latents, self._decode_whole)
        return self._decode_whole(latents)

    def keep_norms_in_float32(self, is_on: bool = True) -> None:
        """Sets whether group norms are computed in float32 if the rest is in half precision."""
        for module in self.modules():
            if isinstance(module, layers.Norm):
                module.in_float32 = is_on

    def _encode_whole(self, pixels: Tensor) -> Tensor:
        return cast(Tensor, self.quant_conv(self.encoder(pixels)))

    def _decode_whole(self, latents: Tensor) -> Tensor:
        return cast(Tensor, self.decoder(self.post_quant_conv(latents)))


def posterior(moments: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and logarithm of the variance, clamped to −30 … 20, from the moments of `encode`; float32, (B, 4, f, h, w)
    each."""
    mean, log_variance = moments.float().chunk(2, dim=1)
    return mean, torch.clamp(log_variance, -30.0, 20.0)
