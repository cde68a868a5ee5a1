"""LatteT2V, the denoiser of Open-Sora-Plan v1.1: a transformer over clips, stills, or both joined.

Latte (Ma et al. 2024, arXiv:2401.03048) alternates blocks that look around within a frame and blocks that look through
time at one place. LatteT2V adds captions to the former, and stills that join a clip in one batch. Names of its tensors
are those of the released weights.
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

_MASKED = -10000.0  # finite, so that a row with nothing to look at stays a number
_UNUSED_TOKENS = 120  # of a table for dropped captions, which every released file holds and nothing reads
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
    """A timestep to what modulates the blocks."""

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
    """States of the text encoder to the width of the tokens."""

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

    Its position tables are worked out from the sizes at hand, so that clips of any length and size can be given; those
    of the configuration are the ones it was trained at. The temporal table is added always, also where stills are
    joined (Open-Sora-Plan leaves it out there when it trains without recompute).
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
        """A spatial and a temporal block, from the input to the output: units to shard, recompute and compile."""
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
        """What the noise is in noisy latents, and how its variance lies between two bounds.

        latents: (B, C, F + I, h, w), a clip of F latent frames and then I = use_image_num stills; h and w divide by the
        patch size. timestep: (B,), 0 … 999, one for a clip and its stills. text: (B, L, D) or (B, 1 + I, L, D), the
        clip's caption first. text_mask: (B, L) or (B, 1 + I, L), latent_mask: (B, F + I, h, w); 1 where something
        counts, None where all does. temporal: False passes by all that looks through time: every frame is a picture of
        its own. Returns (B, out_channels, F + I, h, w); with eight channels the first half is ε, the second the
        position v of the variance, see `diffusion/learned_variance.py`.
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
        for layer, (spatial, moving) in enumerate(self.pairs()):
            bias = biases[int(self.config.compresses(layer))]  # torch 2.10 compiles no index that is a truth value
            x = spatial(x, modulation, text, text_bias, bias, in_plane, grid)
            if temporal:
                x = x + self._time_table(x, frames) if layer == 0 else x
                x = moving(x, modulation, in_time, frames)
        return self._latents(x, embedded, grid)

    def _time_table(self, x: Tensor, frames: int) -> Tensor:
        """(N, 1, W), nothing for stills."""
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
        """(B, N, h, w) → biases (B·N, 1, 1, K) of a layer's own patches, and of those of a layer that shrinks them. A
        patch counts when anything in it does."""
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
