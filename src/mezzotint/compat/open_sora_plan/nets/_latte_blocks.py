"""The blocks of LatteT2V: spatial attention within a frame and temporal attention, each with feed-forward layers.

Tokens are (B, N, T, W) throughout: N frames, first the F of the clip and then images that are joined to it; T patches
per frame; W channels. Modulation is (B, 6, W), one per sample, and is broadcast over frames and patches. Keys and
values of a caption are computed once, however many frames attend to it.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from mezzotint.compat.open_sora_plan.nets._latte_positions import Rotation, rotate


class Attention(nn.Module):
    """Multi-head attention with an output projection. bias: whether the three input projections have a bias."""

    def __init__(self, width: int, heads: int, *, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width, bias=bias)
        self.to_k = nn.Linear(width, width, bias=bias)
        self.to_v = nn.Linear(width, width, bias=bias)
        self.to_out = nn.ModuleList([nn.Linear(width, width)])

    def forward(
        self, x: Tensor, context: Tensor, bias: Tensor | None = None, rotation: Rotation | None = None
    ) -> Tensor:
        """x: queries (n, Q, W), context: keys and values (n, K, W). bias: (n, 1, 1, K), added to the scores. rotation:
        of queries and keys, which must then be the same tokens. Returns (n, Q, W)."""
        attended = self._attend(self.to_q(x), self.to_k(context), self.to_v(context), bias, rotation)
        return cast(Tensor, self.to_out[0](attended))

    def over_captions(self, x: Tensor, text: Tensor, bias: Tensor | None) -> Tensor:
        """Cross-attention to captions. x: (B, N, T, W). text: (B, R, L, W), bias: (B, R, 1, L): row 0 is for all frames
        of the clip, rows 1 … R − 1 are for the last R − 1 frames, the joined images. Returns (B, N, T, W)."""
        joined_images = text.shape[1] - 1
        frames = x.shape[1] - joined_images
        query, key, value = self.to_q(x), self.to_k(text), self.to_v(text)
        of_clip = bias[:, :1] if bias is not None else None
        attended = self._attend(query[:, :frames].flatten(1, 2), key[:, 0], value[:, 0], of_clip)
        if joined_images:
            of_stills = bias[:, 1:].flatten(0, 1).unsqueeze(1) if bias is not None else None
            ask, key, value = (part.flatten(0, 1) for part in (query[:, frames:], key[:, 1:], value[:, 1:]))
            more = self._attend(ask, key, value, of_stills)
            attended = torch.cat([attended, more.reshape(len(x), -1, x.shape[-1])], dim=1)
        projected: Tensor = self.to_out[0](attended)
        return projected.view(x.shape)

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, rotation: Rotation | None = None
    ) -> Tensor:
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (query, key, value))
        if rotation is not None:
            q, k = rotate(q, rotation), rotate(k, rotation)
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return attended.transpose(1, 2).flatten(2)


class ShrinkingAttention(Attention):
    """Attention with compressed keys and values: with a factor above 1, from a grid of patches that is smaller by the
    factor in both directions, or from fewer frames."""

    def __init__(self, width: int, heads: int, *, bias: bool, factor: int, conv: type[nn.Conv1d | nn.Conv2d]) -> None:
        super().__init__(width, heads, bias=bias)
        if factor > 1:
            self.sr = conv(width, width, factor, stride=factor, groups=width)
            nn.init.constant_(self.sr.weight, 1 / self.sr.weight[0].numel())  # initialised as the mean of its inputs
            assert self.sr.bias is not None
            nn.init.zeros_(self.sr.bias)
            self.norm = nn.LayerNorm(width)
        self.factor = factor

    def compress(self, x: Tensor, grid: tuple[int, int] | None = None) -> Tensor:
        """Within frames of a grid (n, T, W) → (n, T/factor², W). Through time (n, F, W) → (n, F/factor, W); an odd
        number of frames is padded with factor − 1 copies of the first one."""
        if self.factor == 1:
            return x
        if grid is None and x.shape[1] % 2:
            x = torch.cat([x[:, :1].expand(-1, self.factor - 1, -1), x], dim=1)
        grid_states = x.transpose(1, 2) if grid is None else x.transpose(1, 2).unflatten(2, grid)
        return cast(Tensor, self.norm(self.sr(grid_states).flatten(2).transpose(1, 2)))


class _Widened(nn.Module):
    """A linear layer and the tanh form of GELU."""

    def __init__(self, width: int, wide: int) -> None:
        super().__init__()
        self.proj = nn.Linear(width, wide)

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.proj(x), approximate="tanh")


class FeedForward(nn.Module):
    """Two linear layers with four times the width in between."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # the layer in the middle is a dropout in the released names
        self.net = nn.Sequential(_Widened(width, 4 * width), nn.Identity(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.net(x))


class _Modulated(nn.Module):
    """Shared by both kinds of block: the table of shift, scale and gate, and layer norms without weights."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.scale_shift_table = nn.Parameter(torch.randn(6, width) / width**0.5)

    def split_modulation(self, modulation: Tensor) -> tuple[Tensor, ...]:
        """(B, 6, W) → shift, scale, gate of attention, then of the feed-forward layers, (B, 1, 1, W) each (Peebles
        and Xie 2022, arXiv:2212.09748; one linear layer for all blocks: Chen et al. 2023, arXiv:2310.00426)."""
        return (self.scale_shift_table + modulation)[:, :, None, None].unbind(1)

    def modulate(self, x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
        """LN(x) (1 + scale) + shift."""
        return functional.layer_norm(x, x.shape[-1:], eps=self.eps) * (1 + scale) + shift


class SpatialBlock(_Modulated):
    """Attention within each frame, then to the captions (without norm and gate), then feed-forward."""

    def __init__(self, width: int, heads: int, *, bias: bool, eps: float, factor: int) -> None:
        super().__init__(width, eps)
        self.attn1 = ShrinkingAttention(width, heads, bias=bias, factor=factor, conv=nn.Conv2d)
        self.attn2 = Attention(width, heads, bias=bias)
        self.ff = FeedForward(width)

    def forward(
        self,
        x: Tensor,
        modulation: Tensor,
        text: Tensor,
        text_bias: Tensor | None,
        patch_bias: Tensor | None,
        rotation: Rotation | None,
        grid: tuple[int, int],
    ) -> Tensor:
        """x: (B, N, T, W). modulation: (B, 6, W). text: (B, R, L, W), text_bias: (B, R, 1, L), see
        `Attention.over_captions`. patch_bias: (B·N, 1, 1, K) of the keys. grid: rows and columns of a frame's T
        patches. Returns the shape of x."""
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.split_modulation(modulation)
        y = self.modulate(x, shift_1, scale_1).flatten(0, 1)
        y = self.attn1(y, self.attn1.compress(y, grid), patch_bias, rotation)
        x = x + gate_1 * y.view(x.shape)
        x = x + self.attn2.over_captions(x, text, text_bias)
        return cast(Tensor, x + gate_2 * self.ff(self.modulate(x, shift_2, scale_2)))


class TemporalBlock(_Modulated):
    """Attention through time at each position, then feed-forward; joined images are unchanged."""

    def __init__(self, width: int, heads: int, *, bias: bool, eps: float, factor: int) -> None:
        super().__init__(width, eps)
        self.attn1 = ShrinkingAttention(width, heads, bias=bias, factor=factor, conv=nn.Conv1d)
        self.ff = FeedForward(width)

    def forward(self, x: Tensor, modulation: Tensor, rotation: Rotation | None, frames: int) -> Tensor:
        """x: (B, N, T, W), of which the first `frames` of N are the clip. Returns the shape of x."""
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = self.split_modulation(modulation)
        clip = x[:, :frames]
        through_time = self.modulate(clip, shift_1, scale_1).transpose(1, 2)
        y = through_time.flatten(0, 1)
        y = self.attn1(y, self.attn1.compress(y), None, rotation)
        clip = clip + gate_1 * y.view(through_time.shape).transpose(1, 2)
        clip = clip + gate_2 * self.ff(self.modulate(clip, shift_2, scale_2))
        return clip if frames == x.shape[1] else torch.cat([clip, x[:, frames:]], dim=1)
