"""The layers of the causal video autoencoder. Nothing depends on later frames: the first frame is repeated as padding.

Clips are (B, C, F, H, W). Layers that process single frames take frames as a batch, (B·F, C, H, W).
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

Triple = tuple[int, int, int]


class CausalConv3d(nn.Module):
    """A convolution over a clip: padded by zeros in space, by the first frame before the clip, and not after it."""

    def __init__(self, inputs: int, outputs: int, size: Triple | int, *, padding: int = 0) -> None:
        super().__init__()
        size = size if isinstance(size, tuple) else (size, size, size)
        self.conv = nn.Conv3d(inputs, outputs, size, padding=(0, padding, padding))
        assert self.conv.bias is not None
        nn.init.zeros_(self.conv.bias)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.conv(repeat_first_frame(x, self.conv.kernel_size[0] - 1)))


class Norm(nn.GroupNorm):
    """Group norm with 32 groups; the statistics of a clip are those of all its frames. in_float32: compute in float32,
    whatever the dtype of the input."""

    def __init__(self, channels: int) -> None:
        super().__init__(32, channels, eps=1e-6)
        self.in_float32 = False

    def forward(self, x: Tensor) -> Tensor:
        # torch.group_norm, since functional.group_norm refuses the single value that a small tile may have
        if not self.in_float32:
            return torch.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)
        wide = torch.group_norm(x.float(), self.num_groups, self.weight.float(), self.bias.float(), self.eps)
        return wide.to(x.dtype)


class ResnetBlock(nn.Module):
    """Two convolutions, each after a norm, with a residual connection. flat: over frames, otherwise over a clip."""

    def __init__(self, inputs: int, outputs: int, *, flat: bool) -> None:
        super().__init__()
        self.norm1 = Norm(inputs)
        self.conv1 = _conv(inputs, outputs, 3, flat=flat)
        self.norm2 = Norm(outputs)
        self.conv2 = _conv(outputs, outputs, 3, flat=flat)
        if inputs != outputs:
            self.nin_shortcut = _conv(inputs, outputs, 1, flat=flat)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(apply_silu(self.norm1(x)))
        y = self.conv2(apply_silu(self.norm2(y)))
        return cast(Tensor, (self.nin_shortcut(x) if hasattr(self, "nin_shortcut") else x) + y)


class FrameAttention(nn.Module):
    """Single-head attention among the positions of each frame."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = Norm(channels)
        self.q = CausalConv3d(channels, channels, 1)
        self.k = CausalConv3d(channels, channels, 1)
        self.v = CausalConv3d(channels, channels, 1)
        self.proj_out = CausalConv3d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        # (B·F, 1, places, C)
        q, k, v = (as_frames(part(y)).flatten(2).transpose(1, 2)[:, None] for part in (self.q, self.k, self.v))
        attended = functional.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2).unflatten(2, x.shape[3:])
        projected: Tensor = self.proj_out(as_clip(attended, len(x)))
        return x + projected


class Downsample(nn.Module):
    """Halves the height and width of frames."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.conv(functional.pad(x, (0, 1, 0, 1))))


class SpatialUpsample2x(nn.Module):
    """Doubles the height and width of a clip."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = CausalConv3d(channels, channels, (1, 3, 3), padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.conv(functional.interpolate(x, scale_factor=(1, 2, 2), mode="nearest")))


class _Mixed(nn.Module):
    """A mix of two branches: α · plain + (1 − α) · learnt, with α = sigmoid(mix_factor)."""

    def __init__(self) -> None:
        super().__init__()
        self.mix_factor = nn.Parameter(torch.tensor([2.0]))

    def mix(self, plain: Tensor, learnt: Tensor) -> Tensor:
        share = self.mix_factor.sigmoid()
        return share * plain + (1 - share) * learnt


class TimeDownsample(_Mixed):
    """F → (F − 1)//2 + 1 frames: the mean of three, mixed with a convolution."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(channels, channels, 3, stride=(2, 1, 1), padding=(0, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = repeat_first_frame(x, 2)
        # not torch's pooling, which does not support bfloat16 on the CPU
        mean = (x[:, :, 0:-2:2] + x[:, :, 1:-1:2] + x[:, :, 2::2]) / 3
        return self.mix(mean, self.conv(x))


class TimeUpsample(_Mixed):
    """F → 2F − 1 frames: the first is kept, the others are doubled; mixed with a convolution of the result."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = CausalConv3d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[2] > 1:
            doubled = functional.interpolate(x[:, :, 1:], scale_factor=(2, 1, 1), mode="trilinear")
            x = torch.cat([x[:, :, :1], doubled], dim=2)
        return self.mix(x, self.conv(x))


def repeat_first_frame(x: Tensor, count: int) -> Tensor:
    """A clip preceded by `count` copies of its first frame."""
    return torch.cat([x[:, :, :1].expand(-1, -1, count, -1, -1), x], dim=2) if count else x


def as_frames(x: Tensor) -> Tensor:
    """(B, C, F, H, W) → (B·F, C, H, W)."""
    return x.transpose(1, 2).flatten(0, 1)


def as_clip(x: Tensor, batch: int) -> Tensor:
    """(B·F, C, H, W) → (B, C, F, H, W)."""
    parted: Tensor = x.unflatten(0, (batch, -1))
    return parted.transpose(1, 2)


def apply_silu(x: Tensor) -> Tensor:
    """SiLU, in place if no gradient needs the input."""
    return functional.silu(x, inplace=not torch.is_grad_enabled())


def _conv(inputs: int, outputs: int, size: int, *, flat: bool) -> nn.Module:
    padding = size // 2
    if flat:
        return nn.Conv2d(inputs, outputs, size, padding=padding)
    return CausalConv3d(inputs, outputs, size, padding=padding)
