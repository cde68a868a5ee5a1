"""LatteT2V, the denoiser of Open-Sora-Plan v1.1: a transformer for clips, images, or images joined to clips.

Latte (Ma et al. 2024, arXiv:2401.03048) alternates spatial blocks, with attention within a frame, and temporal blocks,
with attention through time at each position. LatteT2V adds captions to the former, and images that are joined to a clip
in one batch. Tensor names are those of the released weights.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from mezzotint.compat.open_sora_plan.nets import _latte_positions as positions
from mezzotint.compat.open_sora_plan.nets._configs import LatteConfig
from mezzotint.compat.open_sora_plan.nets._latte_blocks import SpatialBlock, TemporalBlock
from mezzotint.compat.open_sora_plan.nets._latte_positions import Rotation

__all__ = ["Latte", "LatteConfig"]

_MASKED = -10000.0  # finite, so that a fully masked row does not become NaN
_UNUSED_TOKENS = 120  # of a table for dropped captions, which every released file has and nothing uses
_SINUSOIDS = 256


class _Patches(nn.Module):
    """Latents to tokens. `proj`: a convolution whose stride is its size."""

    def __init__(self, config: LatteConfig) -> None:
        super().__init__()
        size = config.patch_size
        self.proj = nn.Conv2d(config.in_channels, config.width, size, stride=size)
        self._base, self._scale = config.base_cells, config.plane_scale

    def forward(self, latents: Tensor) -> Tensor:
        """(n, C, h, w) → (n, T, W), with the 2D table added in float32."""
        x: Tensor = self.proj(latents)
        grid = (x.shape[2], x.shape[3])
        table = positions.plane(grid, x.shape[1], base=self._base, scale=self._scale, device=x.device)
        return (x.flatten(2).transpose(1, 2) + table).to(x.dtype)


class _TimestepEmbedding(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(_SINUSOIDS, width)
        self.linear_2 = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.linear_2(functional.silu(self.linear_1(x))))


class _Timestep(nn.Module):
    """The modulation of the blocks by a timestep."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.emb = nn.ModuleDict({"timestep_embedder": _TimestepEmbedding(width)})
        self.linear = nn.Linear(width, 6 * width)

    def forward(self, timestep: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """(B,) → the embedding (B, W), and the modulation that all blocks share (B, 6, W)."""
        half = _SINUSOIDS // 2
        steps = torch.arange(half, dtype=torch.float32, device=timestep.device)
        angles = timestep.float()[:, None] * torch.exp(-math.log(10000) / half * steps)
        embedded = self.emb["timestep_embedder"](torch.cat([angles.cos(), angles.sin()], dim=1).to(dtype))
        return embedded, self.linear(functional.silu(embedded)).unflatten(1, (6, -1))


class _CaptionProjection(nn.Module):
    """Projects states of the text encoder to the width of the tokens."""

    y_embedding: Tensor

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(channels, width)
        self.linear_2 = nn.Linear(width, width)
        self.register_buffer("y_embedding", torch.zeros(_UNUSED_TOKENS, channels))

    def forward(self, text: Tensor) -> Tensor:
        return cast(Tensor, self.linear_2(functional.gelu(self.linear_1(text), approximate="tanh")))


class Latte(nn.Module):
    """A LatteT2V.

    Position tables are computed from the sizes of the input, so that clips may have any length and size; the
    configuration has the sizes of its training. The temporal table is always added, also with joined images
    (Open-Sora-Plan leaves it out in this case if it trains without recompute).
    """

    def __init__(self, config: LatteConfig) -> None:
        super().__init__()
        self.config = config
        width = config.width
        self.pos_embed = _Patches(config)
        self.adaln_single = _Timestep(width)
        self.caption_projection = _CaptionProjection(config.caption_channels, width)
        pairs = [self._pair(layer) for layer in range(config.num_layers)]
        self.transformer_blocks = nn.ModuleList(spatial for spatial, _ in pairs)
        self.temporal_transformer_blocks = nn.ModuleList(temporal for _, temporal in pairs)
        self.scale_shift_table = nn.Parameter(torch.randn(2, width) / width**0.5)
        self.proj_out = nn.Linear(width, config.patch_size**2 * config.out_channels)

    def _pair(self, layer: int) -> tuple[SpatialBlock, TemporalBlock]:
        c = self.config
        factor = c.compress_kv_factor if c.compresses(layer) else 1
        return (
            SpatialBlock(c.width, c.num_attention_heads, bias=c.attention_bias, eps=c.norm_eps, factor=factor),
            TemporalBlock(c.width, c.num_attention_heads, bias=c.attention_bias, eps=c.norm_eps, factor=factor),
        )

    def pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Pairs of a spatial and a temporal block, from the input to the output: units to shard, recompute and
        compile."""
        return list(zip(self.transformer_blocks, self.temporal_transformer_blocks, strict=True))

    def forward(
        self,
        latents: Tensor,
        timestep: Tensor,
        text: Tensor,
        *,
        text_mask: Tensor | None = None,
        latent_mask: Tensor | None = None,
        use_image_num: int = 0,
        temporal: bool = True,
    ) -> Tensor:
        """Predicts the noise in noisy latents, and the interpolation of its variance between two bounds.

        latents: (B, C, F + I, h, w), a clip of F latent frames and then I = use_image_num images; h and w are divisible
        by the patch size. timestep: (B,), 0 … 999, one for a clip and its images. text: (B, L, D) or (B, 1 + I, L, D),
        the clip's caption first. text_mask: (B, L) or (B, 1 + I, L), latent_mask: (B, F + I, h, w); 1 for positions
        that count, None if all do. temporal: False skips the temporal blocks: every frame is a separate image. Returns
        (B, out_channels, F + I, h, w); with eight channels the first half is ε, the second the interpolation v of the
        variance, see `diffusion/learned_variance.py`.
        """
        batch, _, count, height, width = latents.shape
        cell, frames = self.config.patch_size, count - use_image_num
        assert height % cell == 0, f"a height of {height} latents"
        assert width % cell == 0, f"a width of {width} latents"
        text = text if text.ndim == 4 else text[:, None]
        assert text.shape[1] == 1 + use_image_num, f"{text.shape[1]} captions for a clip and {use_image_num} stills"
        grid = (height // cell, width // cell)
        x = self.pos_embed(latents.transpose(1, 2).flatten(0, 1)).unflatten(0, (batch, count))
        embedded, modulation = self.adaln_single(timestep, x.dtype)
        text, text_bias = self.caption_projection(text), _caption_bias(text_mask, x.dtype)
        biases = self._patch_biases(latent_mask, x.dtype)
        in_plane, in_time = self._rotations(grid, frames, x.device)
        for layer, (spatial, temporal_block) in enumerate(self.pairs()):
            bias = biases[int(self.config.compresses(layer))]  # torch 2.10 does not compile a boolean index
            x = spatial(x, modulation, text, text_bias, bias, in_plane, grid)
            if temporal:
                x = x + self._time_table(x, frames) if layer == 0 else x
                x = temporal_block(x, modulation, in_time, frames)
        return self._latents(x, embedded, grid)

    def _time_table(self, x: Tensor, frames: int) -> Tensor:
        """(N, 1, W), zero for joined images."""
        table = positions.time(frames, x.shape[3], scale=self.config.time_scale, device=x.device)
        return functional.pad(table, (0, 0, 0, x.shape[1] - frames))[:, None].to(x.dtype)

    def _rotations(
        self, grid: tuple[int, int], frames: int, device: torch.device
    ) -> tuple[Rotation | None, Rotation | None]:
        c = self.config
        if not c.use_rope:
            return None, None
        return (
            positions.plane_rotation(grid, c.attention_head_dim, scale=c.plane_scale, device=device),
            positions.time_rotation(frames, c.attention_head_dim, scale=c.time_scale, device=device),
        )

    def _patch_biases(self, mask: Tensor | None, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """(B, N, h, w) → biases (B·N, 1, 1, K) of patches, and of patches in a layer that compresses them. A patch
        counts if any of its latents does."""
        if mask is None:
            return None, None
        patches = functional.max_pool2d(mask.flatten(0, 1).float(), self.config.patch_size)
        shrunk = functional.max_pool2d(patches, self.config.compress_kv_factor)
        whole, small = (((m <= 0).to(dtype) * _MASKED).flatten(1)[:, None, None] for m in (patches, shrunk))
        return whole, small

    def _latents(self, x: Tensor, embedded: Tensor, grid: tuple[int, int]) -> Tensor:
        """(B, N, T, W) → (B, C, N, h, w)."""
        shift, scale = (self.scale_shift_table + embedded[:, None])[:, :, None, None].unbind(1)
        x = functional.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift
        cell = self.config.patch_size
        cells: Tensor = self.proj_out(x).unflatten(3, (cell, cell, -1)).unflatten(2, grid)
        # (B, N, rows, columns, row in the patch, column in it, C)
        return cells.permute(0, 6, 1, 2, 4, 3, 5).flatten(5, 6).flatten(3, 4)


def _caption_bias(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """(B, L) or (B, R, L) → (B, R, 1, L)."""
    if mask is None:
        return None
    rows = mask if mask.ndim == 3 else mask[:, None]
    return ((1 - rows.to(dtype)) * _MASKED)[:, :, None]
